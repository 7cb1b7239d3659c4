"""Read the state of a run as one model, and render it as reports for CI systems and people."""
