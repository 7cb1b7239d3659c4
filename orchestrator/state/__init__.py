"""What is known of runs, on disk and as a model."""
