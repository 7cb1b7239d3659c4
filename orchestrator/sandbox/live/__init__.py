"""Sandboxes that stay: commands run in them, files go in and out, until their time is over."""
