"""Space out the starts of workers."""
