"""Translate exceptions of docker-py and requests into the orchestrator's exceptions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import docker.errors
import requests.exceptions
import urllib3.exceptions

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    ImageNotFoundError,
    OrchestratorError,
    PortTakenError,
)
from orchestrator.engine.docker.address import chosen_address

_START = (
    "start Docker with `sudo systemctl start docker`; if Docker is not installed, run "
    "`orchestrator setup`"
)
_JOIN = "`sudo usermod -aG docker $USER`, then log in again"
_NOT_RUNNING = "container state improper"
_OPEN_FILES = "error setting rlimit type 7"
# Docker 20.10 sometimes counts a container that is gone (moby, issue 43286).
_MEMBERS = "has active endpoints"
# Phrases in the daemon's error when a host port cannot be bound (moby, libnetwork: portallocator
# and docker-proxy).
_PORT_TAKEN = ("port is already allocated", "address already in use")


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Translate exceptions that Docker SDK calls in the block raise into the orchestrator's own.

    Args:
        action: What the calls do, for the error message, as in `start the container`.

    Raises:
        EngineUnavailableError: The daemon cannot be reached, or closed the connection.
        ImageNotFoundError: The daemon lacks the image.
        PortTakenError: A host port is in use.
        EngineError: The daemon refused for any other reason.
    """
    try:
        yield
    except OrchestratorError:
        raise
    except docker.errors.ImageNotFound as error:
        raise ImageNotFoundError(
            f"cannot {action}: {_explain(error)}",
            key="image.missing",
            hint="pull the image, or build it, as with `orchestrator image build`",
        ) from error
    except docker.errors.APIError as error:
        raise _refusal(action, error) from error
    # StreamParseError is a RuntimeError, not a DockerException.
    except (docker.errors.DockerException, docker.errors.StreamParseError) as error:
        if _is_connection(error):
            raise _unreachable(action, error) from error
        raise EngineError(f"cannot {action}: {error}", key="engine.failure") from error
    # docker-py reads streams without requests, so a hang-up in the middle raises urllib3's errors.
    except (
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise _unreachable(action, error) from error


def is_not_running(error: docker.errors.APIError) -> bool:
    """Return whether the engine refused because a container is gone, has ended or is paused."""
    return error.status_code in (404, 409) or _NOT_RUNNING in _explain(error)


def _refusal(action: str, error: docker.errors.APIError) -> OrchestratorError:
    text = _explain(error)
    if any(phrase in text for phrase in _PORT_TAKEN):
        return PortTakenError(f"cannot {action}: {text}", key="port.taken")
    if _NOT_RUNNING in text:
        # Podman 4.3 removes no container that is about to end: the call is repeated.
        return EngineUnavailableError(f"cannot {action}: {text}", key="container.ending")
    if _OPEN_FILES in text:
        return EngineError(
            f"cannot {action}: the engine's own limit of open files is lower than `open_files`",
            key="engine.open-files",
            hint="reduce `open_files`, or raise the limit of the engine's service",
        )
    if _MEMBERS in text:
        return EngineError(
            f"cannot {action}: {text}",
            key="engine.refusal",
            hint="if no container uses the network, restart Docker: it counts one that is gone",
        )
    return EngineError(f"cannot {action}: {text}", key="engine.refusal")


def _explain(error: docker.errors.APIError) -> str:
    return str(error.explanation or error).strip()


def _is_connection(error: BaseException) -> bool:
    return isinstance(error.__cause__ or error.__context__, (requests.RequestException, OSError))


def _unreachable(action: str, error: BaseException) -> EngineUnavailableError:
    root = _root(error)
    # The socket's own error text; the SDK's text also has the names of three classes.
    said = (isinstance(root, OSError) and root.strerror) or str(error)
    return EngineUnavailableError(
        f"cannot {action}: the Docker engine does not answer ({said})",
        key="engine.unreachable",
        hint=_remedy(root),
    )


def _root(error: BaseException) -> BaseException:
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


def _remedy(root: BaseException) -> str:
    if isinstance(root, PermissionError):
        return _JOIN
    with suppress(OrchestratorError):
        address = chosen_address(os.environ)
        if address.source:
            return f"start the engine at {address.shown}, or {address.undo}"
    return _START
