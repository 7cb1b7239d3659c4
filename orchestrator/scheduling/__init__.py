"""Decide which worker starts next: order, free resources, rate limits, budget."""
