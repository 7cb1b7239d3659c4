"""A sandbox with a worktree: one worker from its task to its result. Read `lifecycle.py` first."""
