"""WebSockets to pods over the API server, and commands in their containers.

A command moves data and never decides what became of a task: the connection may be cut at any
byte, and its end without a status is not the command's end.

On the way to a command are the API server, a kubelet and a container runtime, and often a load
balancer. Each of them can fail, before the connection exists by an answer of HTTP, and afterwards
by a status on a channel. `_failure` alone decides what that means.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote, urlencode, urlsplit

import websocket
from kubernetes import client

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    NotRunningError,
    OrchestratorError,
    UnsupportedError,
)
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.interface.protocol import LogChunk, TerminalSize
from orchestrator.engine.kubernetes.cluster import HINTS, Cluster, read_object, retry_after, said_by

_PROTOCOL = "v4.channel.k8s.io"
"""With `v5`, servers from version 1.30 on accept the connection before they reach the node."""
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
    *("container not found", "container not running", "is not running", "pod not found"),
    *("pod does not exist", "is not valid for pod", "does not have a host assigned"),
    *("ContainerCreating", "PodInitializing", "current phase is", "CONTAINER_EXITED"),
    *("no running task found", "is not created or running", "a stopped container"),
)
"""Words of API servers, kubelets and container runtimes for a container that does not run."""
_NO_COMMAND = (
    *('exec: "', "executable file not found", "executable file `", "error finding executable"),
    *("exec format error", "chdir to cwd"),
)
"""Words of container runtimes for a command that they cannot start."""
_CODES = {
    "BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "Conflict": 409,
    "Gone": 410, "Invalid": 422, "TooManyRequests": 429,
}  # fmt: skip
"""Codes of the reasons that a status can have, if it has no code; of others, it is 500."""


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
        EngineUnavailableError: The API server or the node does not answer. With the key
            `cluster.unreachable`, nothing has begun.
        EngineError: The cluster refused.
    """
    headers = [f"{name}: {value}" for name, value in cluster.headers().items()]
    settings = cluster.configuration
    host = settings.host.replace("http", "ws", 1)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/{part}"
    opened = websocket.WebSocket(sslopt=_trust(settings), enable_multithread=True)
    opened.frame_buffer = _BoundedFrames(opened._recv, True)
    try:
        # protection: credentials-follow-no-redirect
        opened.connect(
            f"{host}{path}?{urlencode(query)}",
            header=headers,
            subprotocols=list(protocols),
            timeout=_TIMEOUT,
            suppress_origin=True,
            redirect_limit=0,
            **_proxy(settings),
        )
    except websocket.WebSocketBadStatusException as error:
        raise _failure(cluster, pod, part, error) from error
    except (ConnectionRefusedError, websocket.WebSocketAddressException, _ProxyError) as error:
        raise _unreachable(pod, one_line(str(error), limit=300)) from error
    except (websocket.WebSocketException, OSError, OverflowError) as error:
        raise _cut(str(error)) from error
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
        self.explain: Callable[[NotRunningError], OrchestratorError] = lambda error: error
        """Finds out what it means that the container does not run, according to its node."""
        self._cluster, self._pod, self._has_begun = cluster, pod, False
        self._socket = connect(cluster, pod, "exec", query, [_PROTOCOL])
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
                raise _cut(str(error)) from error

    def output(self) -> Iterator[LogChunk]:
        """Yield the command's output until the command ends.

        Raises:
            EngineUnavailableError: The connection was cut before the command's end was reported.
            NotRunningError: The container does not run any more.
            EngineError: The command could not be started.
        """
        while self.exit_code is None:
            try:
                kind, frame = self._socket.recv_data()
            except (websocket.WebSocketException, OSError) as error:
                raise _cut(str(error)) from error
            if kind == websocket.ABNF.OPCODE_CLOSE:
                raise _cut("it ended without a status")
            if frame[:1] == bytes([_STATUS]):
                self.exit_code = self._end(frame[1:])
            elif len(frame) >= 2 and frame[0] in (_STDOUT, _STDERR):
                self._has_begun = True
                yield LogChunk(stream="stdout" if frame[0] == _STDOUT else "stderr", data=frame[1:])

    def _end(self, data: bytes) -> int:
        """Return the exit code that a status reports.

        Raises:
            OrchestratorError: The status reports no end of the command, but why there is none.
        """
        status = read_object(data) or {}
        if status.get("status") == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            with suppress(ValueError, KeyError, TypeError, AttributeError, StopIteration):
                causes = status["details"]["causes"]
                code = int(next(c["message"] for c in causes if c.get("reason") == "ExitCode"))
                # protection: failure-is-never-exit-code-0
                if code:
                    return code
            status = {}
        if status.get("status") != "Failure":
            # Whoever wrote this, the command's end is as unknown as after a cut.
            raise EngineUnavailableError(
                "the cluster reported the end of a command unreadably",
                key="cluster.unreadable-answer",
            )
        failure = _failure(self._cluster, self._pod, "exec", data, has_begun=self._has_begun)
        raise self.explain(failure) if isinstance(failure, NotRunningError) else failure

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

    @property
    def timed_out(self) -> bool:
        """Return False: commands have no timeout."""
        return False

    def close_stdin(self) -> None:
        """Refuse: the protocol cannot end an input."""
        raise UnsupportedError(
            "the engine `kubernetes` cannot end the input of a command", key="engine.unsupported"
        )

    def signal(self, name: str, *, group: bool = True) -> None:
        """Refuse: commands are only ended with their container."""
        raise UnsupportedError(
            f"the engine `kubernetes` cannot send {name} to a {'group' if group else 'command'}",
            key="engine.unsupported",
        )

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


def _cut(why: str) -> EngineUnavailableError:
    """Return the error of a connection on which a command may have begun."""
    said = one_line(why, limit=300)
    return EngineUnavailableError(f"the connection to the pod was cut: {said}", key="cluster.cut")


def _unreachable(pod: str, said: str, after: float = 0.0) -> EngineUnavailableError:
    """Return the error of a pod that was not reached, so that nothing has begun in it."""
    return EngineUnavailableError(
        f"the cluster cannot reach the pod `{pod}`: {said}",
        key="cluster.unreachable",
        retry_after=after,
    )


def _failure(
    cluster: Cluster,
    pod: str,
    part: str,
    answer: websocket.WebSocketBadStatusException | bytes,
    *,
    has_begun: bool = False,
) -> EngineError | NotRunningError:
    """Return the error that a failure on the way to a pod is, whoever reports it.

    Args:
        cluster: The cluster.
        pod: Name of the pod.
        part: What of the pod is wanted.
        answer: An answer of HTTP instead of a connection, or a status that came over it.
        has_begun: Whether the command has printed something.
    """
    refusal = None if isinstance(answer, bytes) else answer
    body = answer if isinstance(answer, bytes) else answer.resp_body or b""
    status = read_object(body)
    given = (status or {}).get("code") or _CODES.get(str((status or {}).get("reason")), 500)
    code = refusal.status_code if refusal else given if isinstance(given, int) else 500
    said = said_by(body, code, [("create", f"pods/{part}"), ("get", f"pods/{part}")])
    # The cluster's record of the container shows whether a load balancer has invented that.
    if any(words in said for words in _NO_CONTAINER) or code == 404:
        return NotRunningError(
            f"the pod `{pod}` is not running: {said}", key="container.not-running"
        )
    if has_begun:
        return _cut(said)
    is_command = refusal is None and any(words in said for words in _NO_COMMAND)
    if not is_command and (code == 409 or cluster.is_unable(code, is_json=status is not None)):
        # Behind a load balancer without an answer, the command may have begun.
        if refusal is None or (status is None and code in (502, 504)):
            return _cut(said)
        return _unreachable(pod, said, retry_after(refusal.resp_headers or {}))
    return EngineError(
        f"the cluster did not run a command in a pod: {said}"
        if refusal is None
        else f"the cluster refused a connection to the pod `{pod}`: {said}",
        key="cluster.command-refused",
        hint=HINTS.get(code),
    )
