"""Object directories: what a commit reaches, packed and shared by runs."""
