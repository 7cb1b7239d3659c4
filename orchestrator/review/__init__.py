"""Which work is good, and how it gets into a branch of the user."""
