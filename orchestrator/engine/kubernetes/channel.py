"""WebSockets to pods over the API server, and commands in their containers.

A command moves data and never decides what became of a task: the connection may be cut at any
byte, and its end without a status is not the command's end.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import websocket
from kubernetes import client

from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.protocol import LogChunk, TerminalSize
from orchestrator.errors import EngineError, EngineUnavailableError, NotRunningError

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE = range(5)
_FRAME = 64 * 1024
"""Bytes of input per frame. Larger frames are lost, or reset the connection, at some proxies."""
_LARGEST_FRAME = 16 * 1024**2
_TIMEOUT = 30.0
"""Seconds without a byte after which the connection counts as cut: commands give signs of life."""
_PING = 15.0
"""Seconds between two pings, where the command itself may be silent."""
_UNANSWERED = 60.0
"""Seconds without a byte, also in answer to pings, after which the connection counts as cut."""
_ProxyError: type[Exception] = websocket._http.ProxyError  # type: ignore[attr-defined]
_NO_CONTAINER = (
    *("container not found", "container not running", "ContainerCreating"),
    "is not valid for pod",
)


class _BoundedFrames(websocket._abnf.frame_buffer):
    """Refuses a frame by its length, before its content is in memory."""

    def recv_length(self) -> None:
        super().recv_length()
        # protection: frames-of-pod-are-bounded
        if self.length is None or self.length > _LARGEST_FRAME:
            raise websocket.WebSocketProtocolException("the frame is too long")


def connect(
    cluster: Cluster,
    pod: str,
    part: str,
    query: Sequence[tuple[str, str]],
    protocols: Sequence[str],
) -> websocket.WebSocket:
    """Open a WebSocket to a pod.

    Args:
        cluster: The cluster.
        pod: Name of the pod.
        part: What of the pod: `exec`, `log` or `portforward`.
        query: Parameters.
        protocols: The protocols of which the cluster chooses one.

    Raises:
        NotRunningError: The pod or the container does not exist, or does not run.
        EngineUnavailableError: The API server or the node does not answer.
        EngineError: The cluster refused.
    """
    headers = [f"{name}: {value}" for name, value in cluster.headers().items()]
    settings = cluster.configuration
    host = settings.host.replace("http", "ws", 1)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/{part}"
    opened = websocket.WebSocket(sslopt=_trust(settings), enable_multithread=True)
    opened.frame_buffer = _BoundedFrames(opened._recv, True)
    try:
        opened.connect(
            f"{host}{path}?{urlencode(query)}",
            header=headers,
            subprotocols=list(protocols),
            timeout=_TIMEOUT,
            suppress_origin=True,
            **_proxy(settings),
        )
    except websocket.WebSocketBadStatusException as error:
        raise _refused(error, pod, cluster) from error
    except (websocket.WebSocketException, _ProxyError, OSError) as error:
        raise _cut(error) from error
    return opened


def hang_up(opened: websocket.WebSocket) -> None:
    """End a connection, so that a thread that reads from it notices; that thread closes it."""
    if (sock := opened.sock) is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class PodProcess:
    """A command in a running container of a pod."""

    def __init__(
        self,
        cluster: Cluster,
        pod: str,
        container: str,
        command: Sequence[str],
        stdin: TerminalSize | bool = True,
    ) -> None:
        """Start the command.

        Args:
            cluster: The cluster.
            pod: Name of the pod.
            container: Name of its container.
            command: The command and its arguments.
            stdin: Whether the command has an input; or the size of its terminal.

        Raises:
            NotRunningError: The pod or the container does not exist, or does not run.
            EngineUnavailableError: The API server or the node does not answer.
            EngineError: The cluster refused the command.
        """
        query = [("command", word) for word in command]
        terminal = stdin if isinstance(stdin, TerminalSize) else None
        wanted = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
        query += [("container", container)]
        query += [(name, "true" if value else "false") for name, value in wanted.items()]
        self.exit_code: int | None = None
        """The command's exit code, after `output` has ended; None if it is not known."""
        self._socket = connect(cluster, pod, "exec", query, _PROTOCOLS)
        self._is_closed = threading.Event()
        if terminal is not None:
            self.resize(terminal)

    def write(self, data: bytes) -> None:
        """Send input to the command.

        Raises:
            EngineUnavailableError: The connection was cut.
        """
        view = memoryview(data)
        for at in range(0, len(data), _FRAME):
            frame = bytes([_STDIN]) + view[at : at + _FRAME]
            try:
                self._socket.send(frame, opcode=websocket.ABNF.OPCODE_BINARY)
            except (websocket.WebSocketException, OSError) as error:
                # What is sent next would belong to this frame.
                hang_up(self._socket)
                raise _cut(error) from error

    def output(self) -> Iterator[LogChunk]:
        """Yield the command's output until the command ends.

        Raises:
            EngineUnavailableError: The connection was cut before the command's end was reported.
            EngineError: The command could not be started.
        """
        while self.exit_code is None:
            try:
                kind, frame = self._socket.recv_data()
            except (websocket.WebSocketException, OSError) as error:
                raise _cut(error) from error
            if kind == websocket.ABNF.OPCODE_CLOSE:
                raise EngineUnavailableError(
                    "the connection to the pod ended without a status", key="cluster.cut"
                )
            if len(frame) < 2:
                continue
            if frame[0] == _STDOUT:
                yield LogChunk(stream="stdout", data=frame[1:])
            elif frame[0] == _STDERR:
                yield LogChunk(stream="stderr", data=frame[1:])
            elif frame[0] == _STATUS:
                self.exit_code = _exit_code(frame[1:])

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal; a command that has ended is no error."""
        text = json.dumps({"Width": size.columns, "Height": size.rows})
        with suppress(websocket.WebSocketException, OSError):
            self._socket.send(bytes([_SIZE]) + text.encode(), opcode=websocket.ABNF.OPCODE_BINARY)

    def wait(self) -> int:
        """Return the command's exit code, after `output` has ended.

        Raises:
            EngineError: It is not known.
        """
        if self.exit_code is None:
            raise EngineUnavailableError("the command's end is not known", key="cluster.cut")
        return self.exit_code

    def close(self) -> None:
        """Close the connection; the command may go on without it."""
        self._is_closed.set()
        self._socket.shutdown()

    def allow_silence(self) -> None:
        """Send pings from now on: the command gives no signs of life, as those of users."""
        self._socket.settimeout(_UNANSWERED)
        threading.Thread(target=self._ping, name="ping", daemon=True).start()

    def _ping(self) -> None:
        """Ask for signs of life, which also keep proxies from cutting the connection."""
        while not self._is_closed.wait(_PING):
            try:
                self._socket.ping()
            except (websocket.WebSocketException, OSError):
                hang_up(self._socket)
                return


def _exit_code(data: bytes) -> int:
    """Return the exit code that a status reports.

    Raises:
        EngineError: The status reports that the command did not run.
    """
    try:
        status: dict[str, Any] = json.loads(data)
        if status["status"] == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            causes = status["details"]["causes"]
            return int(next(c["message"] for c in causes if c["reason"] == "ExitCode"))
        problem = str(status.get("message", ""))
    except (ValueError, KeyError, TypeError, StopIteration, AttributeError) as error:
        raise EngineError(
            "the cluster reported the end of a command unreadably", key="cluster.unreadable-answer"
        ) from error
    if any(words in problem for words in _NO_CONTAINER):
        raise NotRunningError(
            f"the container is not running: {problem}", key="container.not-running"
        )
    raise EngineError(
        f"the cluster did not run a command in a pod: {problem}", key="cluster.command-refused"
    )


def _trust(settings: client.Configuration) -> dict[str, object]:
    trust: dict[str, object] = {"ca_certs": settings.ssl_ca_cert}
    if not settings.verify_ssl:
        trust["cert_reqs"] = ssl.CERT_NONE
    if settings.cert_file:
        trust |= {"certfile": settings.cert_file, "keyfile": settings.key_file}
    if settings.tls_server_name:
        trust["server_hostname"] = settings.tls_server_name
    return trust


def _proxy(settings: client.Configuration) -> dict[str, object]:
    """Return the options for the proxy that requests use, too.

    The variables of the environment are in the settings; what the library itself makes of them
    differs.
    """
    if settings.proxy is None:
        return {"http_proxy_host": "unused.invalid", "http_proxy_port": 1, "http_no_proxy": ["*"]}
    proxy = urlsplit(settings.proxy)
    user = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    return {
        "http_proxy_host": proxy.hostname,
        "http_proxy_port": proxy.port or (80 if proxy.scheme == "http" else 1080),
        "http_proxy_auth": user,
        "http_proxy_timeout": _TIMEOUT,
        "http_no_proxy": ["unused.invalid"],
        "proxy_type": proxy.scheme,
    }


def _cut(error: Exception) -> EngineUnavailableError:
    return EngineUnavailableError(f"the connection to the pod was cut: {error}", key="cluster.cut")


def _refused(
    error: websocket.WebSocketBadStatusException, pod: str, cluster: Cluster
) -> EngineError | NotRunningError:
    body, status = (error.resp_body or b"").decode(errors="replace"), error.status_code
    try:
        said, is_json = str(json.loads(body)["message"]), True
    except (ValueError, KeyError, TypeError):
        said, is_json = body[:200] or f"HTTP status {status}", False
    if any(words in said for words in _NO_CONTAINER) or status == 404:
        return NotRunningError(
            f"the pod `{pod}` is not running: {said}", key="container.not-running"
        )
    if cluster.is_unable(status, is_json=is_json):
        return EngineUnavailableError(
            f"the cluster cannot reach the pod `{pod}`: {said}", key="cluster.unreachable"
        )
    return EngineError(
        f"the cluster refused a connection to the pod `{pod}`: {said}",
        key="cluster.command-refused",
    )
