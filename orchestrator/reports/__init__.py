"""Read the state of a run as one model, and render it in the formats of CI systems and people."""
