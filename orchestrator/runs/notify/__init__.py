"""Notify the user of events: by a command or a web address."""
