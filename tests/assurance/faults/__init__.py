"""Faults on purpose: processes that are killed, containers that vanish, disks that are full."""
