"""One worker from its start to its result. Read `lifecycle.py` first."""
