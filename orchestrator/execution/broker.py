"""Run the credential broker of a run: its container, its network, and its workers' grants."""

import json
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.broker.grant import Grant
from orchestrator.broker.ledger import Spent, read_ledger
from orchestrator.engine.place import Place, Start
from orchestrator.engine.protocol import Container
from orchestrator.engine.spec import BrokerLink
from orchestrator.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.execution.sidecar import Sidecar
from orchestrator.state.secret_files import remove_grant, write_grant
from orchestrator.text.redact import Redactor

STEP = "broker"
"""Name of the step of the broker's place that runs the broker."""
STATE = "state"
"""Name of the part with the ledgers, in the broker's place."""
_READY = "ready"
"""Name of the file that the broker creates once it accepts connections."""
_START = 60.0
"""Maximum number of seconds until the broker accepts connections."""
_PAUSE = 0.02
_CHECK = 0.5
"""Seconds between two checks whether the broker runs."""
_RECENT = 60.0
"""Number of seconds for which a restart may explain why an agent failed."""
_MOST_STARTS = 100
"""Maximum number of times that a broker which ended is started again while workers run."""
_LOG = 4 * 1024**2
_MOST_STATE = 1024**3
"""Maximum size in bytes of all ledgers of a run."""
_OWN_PLACE = 2
"""Index of the broker's address in its network's addresses; the workers' addresses follow."""


@dataclass(frozen=True, kw_only=True)
class BrokerFiles:
    """The directories of a run's broker on this machine, and its network."""

    memory: Path
    """Directory in memory with the workers' grants, which contain API keys."""
    state: Path
    """Directory with the files that record workers' spending."""
    network: str
    """Id of the broker's network."""
    subnet: IPv4Network
    owner: tuple[int, int]
    """User and group of the broker's process."""

    @property
    def address(self) -> str:
        """Return the broker's IP address."""
        return str(self.subnet[_OWN_PLACE])


@dataclass(frozen=True, kw_only=True)
class BrokerPlan:
    """The place of a run's broker, and the workers that it serves."""

    place: Place
    """The place with the step `STEP`."""
    start: Start
    """What the broker gets; the text for the file that says that it is ready is added."""
    files: BrokerFiles
    workers: tuple[int, ...]
    """Numbers of all workers of the run, in a fixed order."""
    log: Path
    """File to which the broker's output is written."""
    redactor: Redactor
    """Removes API keys from the broker's output."""


def new_token() -> str:
    """Return a new token for a worker, in the form of an API key, as programs check the form."""
    return f"sk-ant-gateway-{secrets.token_hex(24)}"


class RunBroker:
    """The credential broker of a run. Its methods may be called from several threads."""

    def __init__(self, plan: BrokerPlan, *, running: Container | None = None) -> None:
        """Store the arguments.

        Args:
            plan: The broker's place and its workers.
            running: The container that another process started.
        """
        self._plan = plan
        self._files = plan.files
        self._places = {number: index for index, number in enumerate(plan.workers, _OWN_PLACE + 1)}
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._sidecar = None if running is None else self._follow(running)
        self._last_end: tuple[float, str] | None = None
        """Time and reason of the latest end after which the broker was started again."""

    @contextmanager
    def keep_running(self) -> Iterator[None]:
        """Start the broker again whenever it ends during the `with` block."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="broker-watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            # A broker that is being started belongs to the run, which is about to be cleaned up.
            watch.join(_START)

    def _watch(self, over: threading.Event) -> None:
        starts = 0
        while not over.wait(_CHECK) and starts < _MOST_STARTS:
            # What is wrong with the engine or the image is reported at the next worker's start.
            with suppress(OrchestratorError):
                ended = None if self._sidecar is None else _end_reason(self._sidecar)
                if ended is not None:
                    starts += 1
                    self.start()
                    self._last_end = time.monotonic(), f"{ended}, and was started again"

    def start(self) -> None:
        """Start the broker unless it runs, and wait until it accepts connections.

        Raises:
            EngineError: The broker does not start.
        """
        with self._lock:
            if self._sidecar is not None:
                if _end_reason(self._sidecar) is None:
                    return
                self._sidecar.remove()
            ready = secrets.token_hex(8)
            (self._files.state / _READY).unlink(missing_ok=True)
            start = self._plan.start
            start = replace(start, command=(*start.command, ready))
            self._sidecar = self._follow(self._plan.place.order(STEP, start))
            self._await(self._sidecar, ready)

    def _follow(self, container: Container) -> Sidecar:
        plan = self._plan
        sidecar = Sidecar("broker", container, plan.log, limit=_LOG, redactor=plan.redactor)
        try:
            sidecar.start()
        except BaseException:
            container.remove()
            raise
        return sidecar

    def _await(self, sidecar: Sidecar, ready: str) -> None:
        deadline = time.monotonic() + _START
        while not self._is_ready(ready):
            problem = sidecar.end_reason()
            if problem is None and time.monotonic() > deadline:
                problem = f"was not ready within {_START:g} s{sidecar.last_words()}"
            if problem is not None:
                sidecar.remove()
                raise EngineError(
                    f"the credential broker {problem}",
                    key="broker.failed",
                    hint="rebuild the broker's image: `orchestrator image build --agent broker`",
                )
            time.sleep(_PAUSE)

    def _is_ready(self, ready: str) -> bool:
        try:
            self._fetch()
            return (self._files.state / _READY).read_text() == ready
        except EngineUnavailableError:
            raise
        except (EngineError, OSError):
            return False

    def _fetch(self) -> None:
        """Bring the ledgers on this machine up to date.

        Raises:
            EngineError: The engine does not answer, or the broker's place is gone.
            OSError: The disk is full.
        """
        with self._fetching:
            self._plan.place.take(STATE, self._files.state, limit=_MOST_STATE)

    def link(self, worker: int, *, port: int) -> BrokerLink:
        """Return how a worker's container is connected to the broker's network.

        Args:
            worker: Number of the worker.
            port: Port at which the worker's programs reach the broker.
        """
        return BrokerLink(
            network=self._files.network,
            address=self._address(worker),
            broker=self._files.address,
            port=port,
        )

    def admit(self, worker: int, grant: Grant) -> None:
        """Write a worker's grant, which allows its calls; start the broker if it has ended.

        Raises:
            EngineError: The broker does not start, or the grant cannot be written.
        """
        self.start()
        content = grant.model_dump_json().encode()
        write_grant(self._files.memory, self._name(worker), content, self._files.owner)
        self._refresh()

    def _refresh(self) -> None:
        try:
            self._plan.place.refresh(STEP)
        except OSError as error:
            raise EngineError(
                f"cannot write the credential broker's keys: {error.strerror}",
                key="secret.unwritable",
            ) from error

    def dismiss(self, worker: int) -> None:
        """Remove the grant of a worker, which ends the worker's calls."""
        remove_grant(self._files.memory, self._name(worker))
        # If the engine does not answer, the worker's network is gone, too.
        with suppress(OrchestratorError):
            self._refresh()

    def spending(self, ledger: str) -> Spent:
        """Return what a worker has spent according to the broker.

        Args:
            ledger: Name, without `.ndjson`, of the file in which the broker records the spending.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        try:
            self._fetch()
            return read_ledger(self._files.state / f"{ledger}.ndjson")
        except EngineUnavailableError:
            raise
        except (EngineError, OSError):
            return Spent(priced=False)

    def problem(self) -> str | None:
        """Return why the broker ended; None if it is running and has been for a while."""
        ended = None if self._sidecar is None else _end_reason(self._sidecar)
        if ended is None and self._last_end is not None:
            when, why = self._last_end
            ended = why if time.monotonic() - when < _RECENT else None
        return None if ended is None else f"the credential broker {ended}"

    def _address(self, worker: int) -> str:
        return str(self._files.subnet[self._places[worker]])

    def _name(self, worker: int) -> str:
        return f"{self._address(worker)}.json"


def _end_reason(sidecar: Sidecar) -> str | None:
    """Return why a container ended; None while the container is running.

    Raises:
        EngineUnavailableError: The engine does not answer.
    """
    try:
        return sidecar.end_reason()
    except EngineUnavailableError:
        raise
    except OrchestratorError:
        return "is gone: another program removed its container"


def note_network(state: Path, network: str, subnet: IPv4Network) -> None:
    """Record the broker's network, so that another process can resume the run."""
    (state / "network.json").write_text(json.dumps({"id": network, "subnet": str(subnet)}))


def read_network(state: Path, existing: Collection[str]) -> tuple[str, IPv4Network] | None:
    """Return the network of the broker as it was recorded, if it still exists.

    Args:
        state: The broker's directory in the run's directory.
        existing: Ids of the networks that the engine has.
    """
    try:
        noted = json.loads((state / "network.json").read_text())
        found = str(noted["id"]), IPv4Network(noted["subnet"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found[0] in existing else None
