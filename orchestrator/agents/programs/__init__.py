"""The adapters, one for each agent program."""
