"""The user's repository, safe from what is in it: all git commands, and their checks."""
