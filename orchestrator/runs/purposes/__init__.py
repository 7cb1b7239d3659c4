"""Runs with a purpose of their own: candidates, checks, conflicts, caches."""
