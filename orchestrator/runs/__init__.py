"""Runs of many workers: plan, start, schedule, resume, clean up, report."""
