"""Detect how a project is built and tested, from its files, and write a configuration for it."""
