"""Ports of this machine that lead into a pod."""

import socket
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import websocket

from orchestrator.base.errors import NotRunningError, OrchestratorError
from orchestrator.engine.kubernetes.channel import hang_up
from orchestrator.engine.kubernetes.cluster import patient
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.pod import PORTER
from orchestrator.engine.places.port_listener import PortListener

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PIECE = 64 * 1024
_MOST_CONNECTIONS = 256
"""Connections to a worker at the same time; further ones wait."""
_LINGER = 2.0
"""Seconds for the rest of an answer after a client has said everything, or is gone: the protocol
cannot carry the end of its words.
"""


class PortForward:
    """Listens at ports of 127.0.0.1 until `close`; every connection is carried on its own.

    After a cut, the next connection is carried again; those that were open are closed.
    """

    def __init__(self, pod: JobPod) -> None:
        """Store the pod; nothing listens yet."""
        self._pod = pod
        self.ports: dict[int, int] = {}
        """The port in the pod, and the port here that leads there."""
        # protection: connections-to-pod-are-bounded
        self._listener = PortListener(self._carry, most=_MOST_CONNECTIONS)

    def listen(self, ports: Mapping[int, int]) -> None:
        """Let ports of 127.0.0.1 lead to ports of the pod, unless they do already.

        Args:
            ports: The port in the pod, and the port here.

        Raises:
            PortTakenError: A port is in use; no other one of `ports` is either then.
            EngineError: The cluster refuses to carry connections.
        """
        if not ports or self.ports == ports:
            return
        self.close()
        self._listener.listen(ports, check=lambda: self._open(next(iter(ports))).shutdown())
        self.ports.update(ports)

    def close(self) -> None:
        """Listen no more."""
        self.ports.clear()
        self._listener.close()

    @patient
    def _open(self, port: int) -> websocket.WebSocket:
        try:
            return self._pod.connect("portforward", [("ports", str(port))], _PROTOCOL)
        except NotRunningError as error:
            raise self._pod.explain(error, PORTER) from error

    def _carry(self, taken: socket.socket, port: int) -> None:
        with ExitStack() as stack:
            stack.enter_context(suppress(OrchestratorError, websocket.WebSocketException, OSError))
            pod = self._open(port)
            answers = threading.Thread(target=_answer, args=(pod, taken), daemon=True)
            answers.start()
            stack.callback(answers.join)
            stack.callback(hang_up, pod)
            while data := taken.recv(_PIECE):
                pod.send(bytes([_DATA]) + data, opcode=websocket.ABNF.OPCODE_BINARY)
            answers.join(_LINGER)


def _answer(pod: websocket.WebSocket, taken: socket.socket) -> None:
    """Pass on what the pod says, until it or the connection ends."""
    named: set[int] = set()
    with suppress(websocket.WebSocketException, OSError):
        while True:
            kind, frame = pod.recv_data()
            if kind == websocket.ABNF.OPCODE_CLOSE or not frame:
                break
            if frame[0] not in named:
                # The first words on both channels are the port's number.
                named.add(frame[0])
            elif frame[0] == _ERROR:
                break
            else:
                taken.sendall(frame[1:])
    pod.shutdown()
    with suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)
