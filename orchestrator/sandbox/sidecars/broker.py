"""Run the credential broker of a run: its container, its network, and its workers' grants."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.base.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import BrokerLink
from orchestrator.engine.places.place import AddressedPlace, Place, Start
from orchestrator.network.broker.grant import Grant
from orchestrator.network.broker.ledger import Spent, read_ledger
from orchestrator.sandbox.sidecars.broker_address import BrokerNetwork
from orchestrator.sandbox.sidecars.sidecar import Sidecar
from orchestrator.state.secret_files import remove_grant, write_grant

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
_CHECK_PLACE = 2.0
"""The same for a place with an address of its own, whose ledgers are fetched each time."""
_RECENT = 60.0
"""Number of seconds for which a restart may explain why an agent failed."""
_MOST_STARTS = 100
"""Maximum number of times that a broker which ended is started again while workers run."""
_LOG = 4 * 1024**2
_MOST_STATE = 1024**3
"""Maximum size in bytes of all ledgers of a run."""
_MOVED = (
    "the credential broker was lost with its place, and this worker does not know the address of "
    "the new one"
)


@dataclass(frozen=True, kw_only=True)
class BrokerFiles:
    """The directories of a run's broker on this machine."""

    memory: Path
    """Directory in memory with the workers' grants, which contain API keys."""
    state: Path
    """Directory with the files that record workers' spending."""
    owner: tuple[int, int]
    """User and group of the broker's process."""


@dataclass(frozen=True, kw_only=True)
class BrokerPlan:
    """The place of a run's broker, and the workers that it serves."""

    place: Place
    """The place with the step `STEP`."""
    network: BrokerNetwork | None
    """The network of broker and workers; None if their places have addresses of their own."""
    reopen: Callable[[], Place] | None = None
    """Opens another place when the place is lost with everything in it; None if none can be."""
    cut_off: frozenset[int] = frozenset()
    """Numbers of the workers that know an address which the broker had before."""
    start: Start
    """What the broker gets; its address, and the text for the file that says that it is ready, are
    added.
    """
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
        self._place = plan.place
        self._address = self._address_of_place()
        self._cut_off = set(plan.cut_off)
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._granting = threading.Lock()
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
        check = _CHECK if self._plan.network is not None else _CHECK_PLACE
        while not over.wait(check) and starts < _MOST_STARTS:
            # What is wrong with the engine or the image is reported at the next worker's start.
            with suppress(OrchestratorError, OSError):
                ended = None if self._sidecar is None else _end_reason(self._sidecar)
                if ended is not None:
                    starts += 1
                    self.start()
                    self._last_end = time.monotonic(), f"{ended}, and was started again"
                elif self._plan.network is None:
                    # The ledgers may be lost with the place, which ends if nobody asks for long.
                    self._place.step(STEP)
                    self._fetch()

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
            self._sidecar = self._follow(self._order(ready))
            self._await(self._sidecar, ready)

    def _order(self, ready: str) -> Container:
        """Order the broker in its place, or in another one if that is lost."""

        def start() -> Start:
            given = self._plan.start
            return replace(given, command=(*given.command, self._address, ready))

        try:
            return self._place.order(STEP, start())
        except EngineUnavailableError:
            raise
        except EngineError:
            if self._plan.reopen is None:
                raise
        # What the workers know is the address of the place that is lost.
        self._cut_off |= set(grant_files(self._files.memory))
        with suppress(OrchestratorError):
            self._place.remove()
        self._place = self._plan.reopen()
        self._address = self._address_of_place()
        return self._place.order(STEP, start())

    def _address_of_place(self) -> str:
        network = self._plan.network
        return address_of(self._place) if network is None else network.address

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
            self._place.take(STATE, self._files.state, limit=_MOST_STATE)

    def link(self, worker: int, *, port: int) -> BrokerLink:
        """Return how a worker's container is connected to the broker's network.

        Args:
            worker: Number of the worker.
            port: Port at which the worker's programs reach the broker.
        """
        network = self._plan.network
        if network is None:
            return BrokerLink(broker=self._address, port=port)
        return BrokerLink(
            network=network.id,
            address=network.address_of(self._plan.workers.index(worker)),
            broker=network.address,
            port=port,
        )

    def admit(self, worker: int, grant: Grant, place: Place, link: BrokerLink) -> None:
        """Write a worker's grant, which allows its calls; start the broker if it has ended.

        Args:
            worker: Number of the worker.
            grant: What the worker may call.
            place: The place from which it calls.
            link: Connection of the place's steps to the broker.

        Raises:
            EngineError: The broker does not start, the grant cannot be written, or the broker has
                another address than when the place was opened.
        """
        self.start()
        network = self._plan.network
        if network is None:
            if link.broker != self._address:
                raise EngineError(_MOVED, key="broker.moved")
            # protection: grant-is-for-address-of-workers-place
            address = address_of(place)
        else:
            address = link.address
        content = grant.model_dump_json().encode()
        with self._granting:
            # An earlier place of the worker had another address.
            # protection: earlier-address-of-worker-is-withdrawn
            self._withdraw(worker)
            write_grant(self._files.memory, f"{address}.json", content, self._files.owner)
            self._refresh()
        self._cut_off.discard(worker)

    def _withdraw(self, worker: int) -> None:
        for path in grant_files(self._files.memory).get(worker, ()):
            remove_grant(self._files.memory, path)

    def _refresh(self) -> None:
        try:
            self._place.refresh(STEP)
        except OSError as error:
            raise EngineError(
                f"cannot write the credential broker's keys: {error.strerror}",
                key="secret.unwritable",
            ) from error

    def dismiss(self, worker: int) -> None:
        """Remove the grant of a worker, which ends the worker's calls."""
        with self._granting:
            self._withdraw(worker)
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
        known = self._files.state / f"{ledger}.ndjson"
        try:
            self._fetch()
            return read_ledger(known)
        except EngineUnavailableError:
            raise
        except (EngineError, OSError):
            with suppress(OSError):
                return replace(read_ledger(known), priced=False)
            return Spent(priced=False)

    def problem(self, worker: int) -> str | None:
        """Return why the broker ended; None if it has been running for a while where it was."""
        if worker in self._cut_off:
            return _MOVED
        ended = None if self._sidecar is None else _end_reason(self._sidecar)
        if ended is None and self._last_end is not None:
            when, why = self._last_end
            ended = why if time.monotonic() - when < _RECENT else None
        return None if ended is None else f"the credential broker {ended}"


def address_of(place: Place) -> str:
    """Return the address of a place that has one of its own.

    Raises:
        EngineError: It has none, or the engine does not answer.
    """
    if not isinstance(place, AddressedPlace):
        raise EngineError("a place has no address of its own", key="place.no-address")
    return place.address()


def grant_files(memory: Path) -> dict[int, list[str]]:
    """Return the names of the files with grants, by the numbers of the workers."""
    found: dict[int, list[str]] = {}
    for path in memory.glob("*.json"):
        with suppress(OSError, ValueError):
            grant = Grant.model_validate_json(path.read_bytes())
            found.setdefault(int(grant.ledger.partition("-")[0]), []).append(path.name)
    return found


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
