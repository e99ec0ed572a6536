"""What of a segment's files can be trusted, after a kill, a power cut or a damaged disk."""
