"""Set the packet filter of a worker's network namespace, through a helper container of the run.

The helper enters the namespace as soon as the kernel has created it, before the worker's first
instruction. Nothing of a worker reaches the helper: it gets the container's id, the id of its main
process and our rules, all of which come from this program and the engine.
"""

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import docker

from orchestrator.base.errors import EngineError
from orchestrator.base.text.sanitize import output_line
from orchestrator.engine.docker.counters import Meter
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.docker.process import read_frames
from orchestrator.engine.docker.rules import guard_rules
from orchestrator.engine.interface.spec import Egress

READY = "closed"
"""Last line that the helper prints before it takes requests."""
# protection: helper-enters-only-container-that-is-named
# protection: helper-sets-no-rules-in-hosts-namespace
SERVE = r"""
drop() {
  local space=${kept[$id]-}
  [[ -z $space ]] || exec {space}<&-
  unset "kept[$id]"
}
keep() {
  cd "/machine/$process" && mapfile -t groups < cgroup && [[ ${groups[*]} == *"$id"* ]] &&
    [[ -e ns/net && ! ns/net -ef /proc/self/ns/net ]] && drop && exec {space}< ns/net &&
    kept[$id]=$space
}
inside() {
  nsenter --net="/proc/self/fd/${kept[$id]}" nft "$@" 2>&1
}
confine() {
  # A table exists if an earlier request, perhaps to an earlier helper, has set all rules.
  if said=$(inside -f - <<< "$rules") || [[ $said == *"File exists"* ]]
  then answer done
  else answer failed "$said"
  fi
}
answer() {
  local said="$number $*"
  printf '%s\n' "${said//$'\n'/ }"
}
unused() {
  local members=("/sys/class/net/$BRIDGE/brif/"*)
  [[ ! -e ${members[0]} ]]
}
serve() {
  declare -A kept
  local code
  while :; do
    read -r -t "$ALONE" number word id process rules; code=$?
    if ((code > 128)); then
      if unused; then exit; else continue; fi
    fi
    ((code == 0)) || exit
    [[ $number =~ ^[0-9]+$ && $id =~ ^[0-9a-f]{64}$ && $process =~ ^[0-9]+$ ]] || exit
    case $word in
      alive) ;;
      confine) if keep 2> /dev/null; then confine & else answer gone; fi ;;
      refused)
        if [[ -n ${kept[$id]-} ]]
        then answer "$(inside --json list set inet guard refused)" & drop
        else answer {}
        fi ;;
      *) exit ;;
    esac
    cd /
  done
}
"""
"""Functions of the helper's script in `bash`. `/machine` is `/proc` of the machine.

The current directory of `keep` belongs to the process that was found there: it becomes empty with
the end of this process, and never shows another process with the same id.
"""
ALONE = 3600.0
"""Seconds without a request after which the helper ends, if no container uses the network: the
process that started it is dead.
"""
_AT_ONCE = 8
"""Maximum number of requests that the helper processes at the same time."""
_PATIENCE = 20.0
"""Maximum number of seconds that the helper may take for an answer."""
_LOOK = 0.01
"""Seconds between two attempts to set the rules of a container that is being started."""

Allowed = tuple[tuple[str, int | None], ...]


class Helper:
    """The connection to the helper container of a run's network. Several threads may use it."""

    def __init__(
        self, client: docker.APIClient, container_id: str, machine: MachineNetwork
    ) -> None:
        """Connect to the container's input and output, before the container is started.

        Args:
            client: The Docker client.
            container_id: The container.
            machine: The engine's machine.
        """
        self.machine = machine
        self.container = container_id
        with translated("attach to the container"):
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            connection: Any = client.attach_socket(container_id, streams)
        # As in `DockerProcess`: the socket itself, and a reader that has what was read ahead.
        self._socket = getattr(connection, "_sock", connection)
        self._socket.settimeout(_PATIENCE)
        self._response = connection._response
        self._reader = self._response.raw._fp.fp
        self._answers: dict[str, str] = {}
        self._requests = itertools.count()
        self._ended = False
        self._news = threading.Condition()
        self._room = threading.Semaphore(_AT_ONCE)
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()

    def await_ready(self) -> None:
        """Wait until the rules on the host are active, and read answers from then on, in a thread.

        Raises:
            EngineError: The container reports an error, or has ended.
        """
        lines = self._lines()
        with translated("read the container's output"):
            line = next(lines, "the container with the rules for this machine ended")
        # protection: failed-host-rules-are-error
        if line != READY:
            raise EngineError(output_line(line), key="firewall.failed")
        self._socket.settimeout(None)
        self._listener = threading.Thread(
            target=self._listen, args=(lines,), name="network-filter", daemon=True
        )
        self._listener.start()
        threading.Thread(target=self._stay, name="network-filter", daemon=True).start()

    def _stay(self) -> None:
        """Tell the helper regularly that it is needed."""
        while not self._closed.wait(ALONE / 6) and not self._ended:
            with self._news, suppress(OSError):
                self._socket.sendall(f"{next(self._requests)} alive {'0' * 64} 0\n".encode())

    def works(self) -> bool:
        """Return whether the container still answers, as far as this is known without asking."""
        return not self._ended

    def give_up(self) -> None:
        """Use the helper no more: it has ended, is stopped, or cannot enter containers."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def confine(self, container: str, process: int, rules: str) -> bool:
        """Set the rules in a container's network namespace, unless they are set.

        Returns:
            Whether the rules are active; False if the process does not exist, or has no network
            namespace of its own yet.

        Raises:
            EngineError: The rules could not be set.
        """
        answer = self._ask("confine", container, process, rules)
        if answer not in ("done", "gone"):
            raise EngineError(
                f"cannot set up the firewall of the worker's network: {output_line(answer)}",
                key="firewall.failed",
            )
        return answer == "done"

    def refused(self, container: str) -> bytes:
        """Return the places to which a container was refused connections, and forget it.

        Raises:
            EngineError: The helper does not answer.
        """
        return self._ask("refused", container, 0, "").encode()

    def _ask(self, word: str, container: str, process: int, rules: str) -> str:
        with self._room:
            number = str(next(self._requests))
            with self._news, suppress(OSError):
                request = f"{number} {word} {container} {process} {rules.strip()}\n"
                self._socket.sendall(request.encode())
                self._news.wait_for(lambda: self._ended or number in self._answers, _PATIENCE)
            answer = self._answers.pop(number, None)
        if answer is None:
            # protection: helper-that-does-not-answer-is-not-asked-again
            self.give_up()
            raise EngineError(
                "the container that sets the firewall of the run's network does not work",
                key="firewall.failed",
            )
        return answer

    def _listen(self, lines: Iterator[str]) -> None:
        with suppress(OSError, ValueError):  # the connection was closed
            for line in lines:
                number, _, answer = line.partition(" ")
                with self._news:
                    self._answers[number] = answer
                    self._news.notify_all()
        self.give_up()

    def _lines(self) -> Iterator[str]:
        """Yield the lines that the container prints."""
        said = b""
        for _, data in read_frames(self._reader):
            said += data
            *lines, said = said.split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)

    def close(self) -> None:
        """Close the connection. The container keeps running while others use the network."""
        self._closed.set()
        with suppress(OSError):  # the daemon has closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._listener is not None:
            self._listener.join()
        self._response.close()


@dataclass
class NetworkFilter:
    """The packet filter of one container, which has a network of its own without a guard."""

    container: str
    """Id of the container."""
    allowed: Allowed
    """Destinations that stay reachable, as in `Egress`."""
    network: str
    """Id of the container's network."""
    helper: Helper | None = None
    """The helper of the run's network; None if this process has none."""
    active: bool = False
    """Whether the helper confirmed the rules, and knows the container."""

    @classmethod
    def labelled(cls, container: str, text: str, network: str) -> "NetworkFilter | None":
        """Return the filter that a label describes; None without a label."""
        if not text:
            return None
        allowed = tuple((address, port) for address, port in json.loads(text))
        return cls(container, allowed, network)

    def apply(self, process: int) -> bool:
        """Set the rules, unless they are set; return whether they are active.

        Raises:
            EngineError: The rules could not be set.
        """
        helper = self._helper()
        self.active = process > 0 and helper.confine(self.container, process, self._rules)
        return self.active

    @cached_property
    def _rules(self) -> str:
        """The rules, which are the same for all attempts to set them while a container starts."""
        egress = Egress(image="", allowed=self.allowed)
        return guard_rules(egress, self._helper().machine)

    def apply_early(self, meter: Meter) -> None:
        """Set the rules while the engine starts the container, as early as possible.

        Whoever started the container checks that they are active.
        """
        process = meter.main_process()
        with suppress(EngineError):
            # At first, the process has no network namespace of its own.
            while process and not self.apply(process) and not meter.was_started(_LOOK):
                continue

    def refused(self) -> bytes:
        """Return the places to which the container was refused connections, as `nft` lists them.

        Raises:
            EngineError: The helper does not answer.
        """
        self.active = False
        return self._helper().refused(self.container)

    def give_up(self) -> None:
        """Let the network's next containers have guards."""
        if self.helper is not None:
            self.helper.give_up()

    def forget(self) -> None:
        """Let the helper forget the container, which has ended."""
        if self.active:
            with suppress(EngineError):
                self.refused()

    def _helper(self) -> Helper:
        if self.helper is None:
            raise EngineError(
                "no container sets the firewall of the worker's network", key="firewall.failed"
            )
        return self.helper
