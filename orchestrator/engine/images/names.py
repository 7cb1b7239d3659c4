"""Names of images, and the hint for a missing image."""

BASE_IMAGE = "orchestrator/base:latest"
"""Image with git and Python, in which `shell` tasks run and every worker's work is collected."""


BROKER_IMAGE = "orchestrator/broker:latest"
"""Image of the credential broker."""
_WORKER_IMAGES = "orchestrator/worker"
PROJECT_IMAGES = "orchestrator/project"
"""First part of the names of images that are built from a project's own Dockerfile."""


def worker_image(agent: str) -> str:
    """Return the name of the worker image with this agent program."""
    return f"{_WORKER_IMAGES}:{agent}"


def is_own_name(image: str) -> bool:
    """Return whether a name is one that the orchestrator gives to images."""
    repository, _, tag = image.rpartition(":")
    fixed = image in (BASE_IMAGE, BROKER_IMAGE)
    return fixed or (repository in (_WORKER_IMAGES, PROJECT_IMAGES) and "/" not in tag)


def image_hint(image: str) -> str:
    """Return a hint on how to get an image that the engine does not have."""
    known = {BASE_IMAGE: "shell", BROKER_IMAGE: "broker"}
    agent = known.get(image) or image.removeprefix(worker_image(""))
    if agent != image:
        return f"build the image with `orchestrator image build --agent {agent}`"
    if image.startswith(PROJECT_IMAGES):
        return "build the project's image with `orchestrator image build --from PATH`"
    return "pull or build the image"


DEFAULT_IMAGE = worker_image("architect")
"""Image of the agent program `architect`."""
