"""The Docker engine, on the Docker SDK; no other package imports `docker`."""

from orchestrator.engine.docker.engine import DockerEngine

__all__ = ["DockerEngine"]
