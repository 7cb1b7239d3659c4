"""Git: every git command, the user's repository, and the quarantine for workers' commits."""
