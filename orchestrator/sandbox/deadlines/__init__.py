"""Kill overdue containers even if the orchestrator is gone."""
