"""What the product cannot do yet; a line that changes switches on the checks that need it."""

HAS_SUMS = True
"""Checksums of batches: with them a power cut leaves no part of a put, and no bytes that nobody
sent, whatever sectors of the last writes reached the disk. Without them only records are told."""

NEEDS_SUMS = "" if HAS_SUMS else "needs sums"
"""Why a scenario that is about them cannot be run."""
