"""Labels that every engine object of the orchestrator carries."""

MANAGED = "orchestrator.managed"


RUN = "orchestrator.run"


WORKER = "orchestrator.worker"


REPOSITORY = "orchestrator.repository"


DEADLINE = "orchestrator.deadline"


ROLE = "orchestrator.role"


SERVICE = "orchestrator.service"


GATEWAY = "orchestrator.gateway"
"""Id of the gateway's container, on the container that owns the network of a worker."""


SHARES = "orchestrator.shares-network"
"""On a container that uses the network of another one, which outlives it."""
