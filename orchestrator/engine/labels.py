"""Labels that every object of ours in an engine carries."""

MANAGED = "orchestrator.managed"


RUN = "orchestrator.run"


WORKER = "orchestrator.worker"


REPOSITORY = "orchestrator.repository"


DEADLINE = "orchestrator.deadline"


ROLE = "orchestrator.role"


SERVICE = "orchestrator.service"
