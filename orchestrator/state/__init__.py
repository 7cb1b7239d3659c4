"""State on disk: directories of runs and workers, checkpoints, history, secrets."""
