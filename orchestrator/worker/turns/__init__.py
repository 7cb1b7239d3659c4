"""Turns and sessions of a worker, and the results that are made of them."""
