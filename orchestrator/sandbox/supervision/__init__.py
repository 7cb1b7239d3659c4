"""Watch one container: its output, its deadline and its limits, and derive a verdict."""
