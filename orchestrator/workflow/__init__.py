"""Workflows: what a manifest asks for, in which order, and how it looks. No engine, no git."""
