"""Check, start, resume, repeat or detach one run."""
