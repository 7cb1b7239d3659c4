"""Files of one worker: paths, checkpoints, endings, turns."""
