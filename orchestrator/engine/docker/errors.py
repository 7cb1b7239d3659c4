"""Every exception of docker-py and requests becomes one of ours here, and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

import docker.errors
import requests.exceptions
import urllib3.exceptions

from orchestrator.errors import (
    EngineError,
    EngineUnavailableError,
    ImageNotFoundError,
    OrchestratorError,
    PortTakenError,
)

UNREACHABLE_HINT = (
    "is the Docker engine running, and may you use it? `orchestrator doctor` tells what is missing"
)
# What the daemon says when a host port cannot be bound (moby, libnetwork: portallocator and
# docker-proxy).
_PORT_TAKEN = ("port is already allocated", "address already in use")


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Run a block of SDK calls; `action` says what they do, as in `start the container`.

    Raises:
        EngineUnavailableError: The daemon cannot be reached or hung up.
        ImageNotFoundError: The daemon lacks the image.
        PortTakenError: A host port is in use.
        EngineError: Any other refusal.
    """
    try:
        yield
    except OrchestratorError:
        raise
    except docker.errors.ImageNotFound as error:
        raise ImageNotFoundError(
            f"cannot {action}: {_explain(error)}", hint="build it with `orchestrator image build`"
        ) from error
    except docker.errors.APIError as error:
        raise _refusal(action, error) from error
    # StreamParseError is a RuntimeError, not a DockerException.
    except (docker.errors.DockerException, docker.errors.StreamParseError) as error:
        if _is_connection(error):
            raise _unreachable(action, error) from error
        raise EngineError(f"cannot {action}: {error}") from error
    # urllib3's own: docker-py reads streams past requests, so a hang-up midway comes as it is.
    except (
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise _unreachable(action, error) from error


def _refusal(action: str, error: docker.errors.APIError) -> OrchestratorError:
    text = _explain(error)
    if any(phrase in text for phrase in _PORT_TAKEN):
        return PortTakenError(f"cannot {action}: {text}")
    return EngineError(f"cannot {action}: {text}")


def _explain(error: docker.errors.APIError) -> str:
    return str(error.explanation or error).strip()


def _is_connection(error: BaseException) -> bool:
    return isinstance(error.__cause__ or error.__context__, (requests.RequestException, OSError))


def _unreachable(action: str, error: BaseException) -> EngineUnavailableError:
    return EngineUnavailableError(
        f"cannot {action}: the Docker engine does not answer ({_root(error)})",
        hint=UNREACHABLE_HINT,
    )


def _root(error: BaseException) -> str:
    """Give the system's own words, which the SDK wraps in the names of three classes."""
    root = error
    while inner := root.__cause__ or root.__context__:
        root = inner
    return (isinstance(root, OSError) and root.strerror) or str(error)
