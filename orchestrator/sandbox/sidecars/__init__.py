"""Containers beside workers: services, and the credential broker of a run."""
