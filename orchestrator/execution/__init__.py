"""Supervise one container: start, output, limits, deadline, verdict."""
