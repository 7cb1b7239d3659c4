"""Check, start, resume, repeat or detach a run; run checks and commands in containers."""
