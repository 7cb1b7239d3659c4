"""Check, start, resume, repeat or detach a run."""
