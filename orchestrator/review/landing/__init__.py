"""Landing: compare the branches of a run, and merge them into a branch of the user."""
