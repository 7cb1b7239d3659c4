"""Tests that every exception of the Docker SDK is translated."""

import inspect
import socket
import threading
from pathlib import Path

import docker.errors
import pytest
import requests
import urllib3

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    ImageNotFoundError,
    OrchestratorError,
    PortTakenError,
)
from orchestrator.engine import load_engine
from orchestrator.engine.docker.errors import translated

SDK = [
    kind
    for _, kind in inspect.getmembers(docker.errors, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == "docker.errors"
]
TRANSPORT = [
    requests.exceptions.ConnectionError("refused"),
    requests.exceptions.ReadTimeout("slow"),
    requests.exceptions.ChunkedEncodingError("cut off"),
    requests.exceptions.JSONDecodeError("not JSON", "<html>", 0),
    urllib3.exceptions.ProtocolError("hung up"),
    ConnectionResetError("reset"),
    BrokenPipeError("gone"),
]


def make(kind: type[Exception]) -> Exception:
    """Create an exception with an argument for every parameter."""
    if kind.__init__ in (Exception.__init__, ValueError.__init__):
        return kind("something")
    wanted = [
        parameter
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    ]
    return kind(*("something" for _ in wanted))


def through(error: Exception) -> OrchestratorError:
    with pytest.raises(OrchestratorError, match="cannot do this") as caught, translated("do this"):
        raise error
    return caught.value


def test_sdk_has_the_known_exceptions() -> None:
    assert {"APIError", "DockerException", "StreamParseError"} <= {kind.__name__ for kind in SDK}
    assert len(SDK) >= 15


@pytest.mark.parametrize("kind", SDK)
def test_every_exception_of_the_sdk_is_translated(kind: type[Exception]) -> None:
    error = make(kind)
    ours = through(error)
    assert isinstance(ours, EngineError | ImageNotFoundError)
    assert ours.__cause__ is error


@pytest.mark.parametrize("error", TRANSPORT, ids=lambda error: type(error).__name__)
def test_lost_connection_means_engine_unavailable(error: Exception) -> None:
    ours = through(error)
    assert isinstance(ours, EngineUnavailableError)
    assert ours.hint is not None


@pytest.mark.parametrize(
    ("host", "error", "words"),
    [
        (
            None,
            FileNotFoundError(2, "No such file"),
            ("systemctl start docker", "setup"),
        ),
        (None, ConnectionRefusedError(111, "Connection refused"), ("systemctl start docker",)),
        (None, PermissionError(13, "Permission denied"), ("usermod -aG docker",)),
        ("tcp://there:1", ConnectionRefusedError(111, "refused"), ("`tcp://there:1`", "unset")),
        ("unix:///s", PermissionError(13, "Permission denied"), ("usermod -aG docker",)),
    ],
)
def test_hint_depends_on_the_error(
    monkeypatch: pytest.MonkeyPatch, host: str | None, error: OSError, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host or "")
    wrapped = docker.errors.DockerException("Error while fetching server API version")
    wrapped.__cause__ = requests.exceptions.ConnectionError()
    wrapped.__cause__.__cause__ = error
    ours = through(wrapped)
    assert isinstance(ours, EngineUnavailableError)
    assert ours.hint is not None
    assert all(word in ours.hint for word in words)
    assert "doctor" not in ours.hint


def test_own_error_is_not_translated() -> None:
    error = PortTakenError("taken", key="port.taken")
    with pytest.raises(PortTakenError) as caught, translated("do this"):
        raise error
    assert caught.value is error


def test_other_exception_is_not_translated() -> None:
    with pytest.raises(KeyError), translated("do this"):
        raise KeyError("bug")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("driver failed: Bind for 127.0.0.1:80 failed: port is already allocated", PortTakenError),
        ("listen tcp4 127.0.0.1:80: bind: address already in use", PortTakenError),
        ("no space left on device", EngineError),
    ],
)
def test_daemon_message_determines_the_error(said: str, expected: type[Exception]) -> None:
    error = docker.errors.APIError("500 Server Error", explanation=said)
    ours = through(error)
    assert type(ours) is expected
    assert said in ours.message


def test_missing_socket_means_engine_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(EngineUnavailableError) as caught:
        load_engine("docker")
    assert caught.value.hint is not None
    assert caught.value.exit_code == 7


def test_daemon_that_hangs_up_means_engine_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        hang_up = threading.Thread(target=lambda: server.accept()[0].close())
        hang_up.start()
        with pytest.raises(EngineUnavailableError):
            load_engine("docker")
        hang_up.join(5)


def test_invalid_address_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "nonsense://")
    with pytest.raises(EngineError):
        load_engine("docker")


def test_only_a_network_that_docker_counts_wrongly_asks_for_a_restart() -> None:
    said = "error while removing network: network n id 1 has active endpoints"
    counted = through(docker.errors.APIError("403 Forbidden", explanation=said))
    other = through(docker.errors.APIError("403 Forbidden", explanation="not now"))
    assert (counted.hint is not None, other.hint is not None) == (True, False)
