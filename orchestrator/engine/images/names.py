"""Names of images, and the hint for a missing image."""

BASE_IMAGE = "orchestrator/base:latest"
"""git and Python: what `shell` tasks run in, and what harvests every worker's work."""


PROJECT_IMAGES = "orchestrator/project"
"""The repository of images that are made from a project's own Dockerfile."""


def worker_image(agent: str) -> str:
    """Name the image that workers with this agent program run in."""
    return f"orchestrator/worker:{agent}"


def image_hint(image: str) -> str:
    """Return what to do when the engine does not have an image."""
    agent = "shell" if image == BASE_IMAGE else image.removeprefix(worker_image(""))
    if agent != image:
        return f"`orchestrator image build --agent {agent}` makes it"
    if image.startswith(PROJECT_IMAGES):
        return "`orchestrator image build --from PATH` makes the images of projects"
    return "pull or build it"


DEFAULT_IMAGE = worker_image("architect")
"""What the `architect` agent runs in."""
