"""Render a run as reports for CI systems and people."""
