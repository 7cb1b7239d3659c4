"""Worktrees and checkouts: create, fill, list, disarm and remove them."""
