"""Tests with injected faults: killed processes, removed containers, full disks."""
