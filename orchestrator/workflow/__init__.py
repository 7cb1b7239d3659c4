"""Workflows: parsing, execution order, drawing. Uses neither a container engine nor git."""
