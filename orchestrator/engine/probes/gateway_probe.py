"""Test how containers can be confined on this machine: by an allow-list, on an open network."""

import secrets

from orchestrator.base.errors import EngineError
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.interface.protocol import ContainerEngine, Leftover
from orchestrator.engine.interface.spec import ContainerSpec, Egress
from orchestrator.network.gateway.allowed_host import AllowedHost

_TIMEOUT = 60.0
_NAME = "a.example.net"
"""Host name for the test, which the gateway itself resolves; nothing connects to it."""


def open_network_problem(engine: ContainerEngine, repository: str) -> str | None:
    """Return why each container with an open network needs a guard; None if it needs none.

    Args:
        engine: The engine.
        repository: The repository's git common directory, for the labels.

    Raises:
        EngineError: The helper of an open network cannot be started.
    """
    run = f"doctor-{secrets.token_hex(4)}"
    labels = for_a_moment(repository, run=run)
    try:
        name = f"orchestrator-{run}"
        network = engine.create_network(name, labels)
        return engine.close_host(f"{name}-host", network, Egress(image=BASE_IMAGE), labels)
    finally:
        for leftover in engine.leftovers(labels):
            engine.remove(leftover)


def gateway_problem(engine: ContainerEngine, repository: str) -> str | None:
    """Return why containers with a gateway do not work on this machine; None if they work.

    Args:
        engine: The engine.
        repository: The repository's git common directory, for the labels.
    """
    run = f"doctor-{secrets.token_hex(4)}"
    labels = for_a_moment(repository, run=run)
    network = None
    try:
        network = engine.create_network(f"orchestrator-{run}", labels)
        container = engine.start(
            ContainerSpec(
                name=f"orchestrator-{run}-probe",
                image=BASE_IMAGE,
                command=("sh", "-c", f"getent ahostsv4 {_NAME} && ! getent ahostsv4 other.{_NAME}"),
                user="65534:65534",
                workdir="/",
                labels=labels,
                network=network,
                egress=Egress(image=BASE_IMAGE, hosts=(AllowedHost(name=_NAME),)),
            )
        )
        try:
            status = container.wait(_TIMEOUT)
        finally:
            container.remove()
        return None if status.exit_code == 0 else "names are not resolved as the allow-list says"
    except EngineError as error:
        return error.message
    except TimeoutError:
        return f"a container with a gateway did not end within {_TIMEOUT:g} s"
    finally:
        if network is not None:
            engine.remove(Leftover(kind="network", id=network, labels=labels))
