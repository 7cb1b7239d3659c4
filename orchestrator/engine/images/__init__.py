"""Build the images that workers run in."""
