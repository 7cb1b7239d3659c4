"""The Docker engine, built on the Docker SDK. Only this package imports `docker`."""

from orchestrator.engine.docker.engine import DockerEngine

__all__ = ["DockerEngine"]
