"""File layers that stand for a disk: in memory, watched, recorded, cut off."""
