"""Take a worker's work over: with a container, or without for ordinary files."""
