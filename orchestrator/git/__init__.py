"""Git: all git commands, the user's repository, and the checks of workers' commits."""
