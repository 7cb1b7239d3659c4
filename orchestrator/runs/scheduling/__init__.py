"""Decide which worker starts next, by order, free resources, rate limits and budget."""
