"""What is on disk: directories of runs and workers, checkpoints, history, secrets."""
