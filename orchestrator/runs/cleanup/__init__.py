"""Remove, back up, restore and recover the worktrees, branches and containers of past runs."""
