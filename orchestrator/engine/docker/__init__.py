"""The Docker engine, through the Docker SDK; nothing outside this package imports `docker`."""

from orchestrator.engine.docker.engine import DockerEngine

__all__ = ["DockerEngine"]
