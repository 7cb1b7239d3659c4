"""Compare, create and merge commits without a checkout."""
