"""Workflows: parse them, order their tasks, draw them. No code here uses containers or git."""
