"""Read settings from options, variables and files, and restrict them."""
