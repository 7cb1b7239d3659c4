"""One worker from start to finish; read `lifecycle.py` first."""
