"""Read, write, measure and remove files that a worker may have written."""
