"""Files of runs and workers on disk: directories, checkpoints, secrets."""
