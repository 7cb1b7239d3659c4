"""The porter of a place with volumes, which is a container of its own."""

import json
from functools import partial
from typing import Any

import docker
import docker.errors

from orchestrator.base.errors import EngineError, NotRunningError
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_files import read_file
from orchestrator.engine.docker.process import DockerProcess
from orchestrator.engine.places.porter_calls import PorterCalls, understood

STATE = "/state"
"""Directory of the porter's own files, on a volume that no step sees."""
_COMMAND = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "talk")
_SILENCE = 60.0
"""Maximum number of seconds without a sign of life of a command; see `commands.talk`."""
_LARGEST_FILE = 4 * 1024**2


class _Talk(DockerProcess):
    _patience = _SILENCE


def _talk(client: docker.APIClient, container: str) -> _Talk:
    try:
        return _Talk(client, container, _COMMAND, env={}, stdin=True)
    except NotRunningError as error:
        raise EngineError("the place has ended", key="place.ended") from error


class Porter(PorterCalls):
    """The porter in one container, which needs not exist yet."""

    def __init__(self, client: docker.APIClient, name: str) -> None:
        super().__init__(partial(_talk, client, name))
        self._client = client
        self.name = name

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return what the engine knows of a container; None if it does not exist."""
        with translated("inspect the container"):
            try:
                found: dict[str, Any] = self._client.inspect_container(container)
            except docker.errors.NotFound:
                return None
        return found

    def runs(self) -> bool:
        """Return whether the porter runs."""
        found = self.inspect(self.name)
        return found is not None and bool(found["State"]["Running"])

    def read_record(self, name: str) -> dict[str, Any]:
        """Return a JSON object among the porter's files, also if the place has ended.

        The object is empty if it was never written.
        """
        data = read_file(self._client, self.name, f"{STATE}/{name}", most=_LARGEST_FILE)
        with understood():
            record: dict[str, Any] = dict(json.loads(data or b"{}"))
        return record
