"""What a run has while it lives: its record, its resources, its credential broker."""
