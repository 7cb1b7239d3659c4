"""Decide which worker starts next: order, free machine, rate limits, budget."""
