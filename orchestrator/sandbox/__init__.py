"""One container: start it, read its output, enforce its limits, derive a verdict."""
