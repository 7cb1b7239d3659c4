"""The settings of a run: models, defaults, sources, validation."""
