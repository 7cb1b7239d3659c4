"""Every git command, the user's repository, and the quarantine for what workers hand over."""
