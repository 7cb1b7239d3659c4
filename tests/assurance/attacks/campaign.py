"""A run of the real command line with several attacks and an honest worker beside them."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.assurance.attacks import secret
from tests.assurance.attacks.attack import SCRIPTS, Attack
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.leftovers import clean_up
from tests.assurance.attacks.service import host_services
from tests.assurance.attacks.target import HONEST, Target, make_target
from tests.cluster.lab import HUB, LAB, Lab
from tests.cluster.policy import enforced
from tests.cluster.runs import UNENFORCED
from tests.support.ci_parsers import commands_in
from tests.support.cli import high_water

LIMITS = ("--memory", "256m", "--pids", "128", "--cpus", "1")
TIME = ("--timeout-per-worker", "120", "--grace", "1")
NETWORK = ("--network", "none")
SIDE_BY_SIDE = 10
"""Maximum number of workers of a run at the same time."""
LONGEST = 600.0
"""Maximum duration of a run, in seconds; of one in pods, three times as long."""
MOST_MEMORY = 600 * 1024**2
"""Maximum memory of the orchestrator, in bytes."""
_ENFORCED = ("--allow-unenforced", UNENFORCED.removeprefix("network,"))
_ADDRESS_SPACE = 12 * 1024**3
_SIBLING = "sleep 2; echo done > sibling.txt; git add sibling.txt; git commit -qm sibling"
# Control characters: C0 without the newline, DEL, C1, and bidirectional controls.
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Observation:
    """The outcome and the harms of one attack."""

    attack: Attack
    harms: list[str] = field(default_factory=list)
    """Damage to the host, the repository, other workers or the printed report."""
    outcome: str = ""
    """Status, reason and message of the attacking worker."""


@dataclass
class Campaign:
    """The outcome of one run with several attacks."""

    observations: list[Observation]
    harms: list[str] = field(default_factory=list)
    """Damage that cannot be attributed to one attack."""
    seconds: float = 0.0
    mode: str = ""
    """How the work tree was mounted: `overlay` or `bind`."""


def run_campaign(
    caller: Caller, place: Path, attacks: tuple[Attack, ...], *, worktrees: str = "start"
) -> Campaign:
    """Run attacks in a new repository at `place`, and check everything afterwards."""
    target = make_target(caller, place, attacks[0].repository, worktrees=worktrees)
    marks = place.parent / f"{place.name}-marks"
    marks.mkdir()
    campaign = Campaign([Observation(attack) for attack in attacks])
    traps = [set_trap(marks, attack) for attack in attacks]
    caller.own(marks)
    before = [trap_times(trap) for trap in traps]
    # Attacks without a network cannot look for services of the host.
    is_open = "open" in attacks[0].options
    with _services() if is_open else nullcontext(dict[str, str]()) as told:
        tasks = [attack.task(told | variables(target, marks, attack)) for attack in attacks]
        tasks.append(_SIBLING)
        with _meanwhile(target, len(tasks), campaign.harms):
            started = time.monotonic()
            options = (*attacks[0].options, *(_ENFORCED if is_open and _in_pods() else ()))
            done = _orchestrate(target, tasks, options)
            campaign.seconds = time.monotonic() - started
    campaign.harms += done.harms
    if done.results:
        _look(campaign, target, done)
    campaign.harms += [*next_steps(target, len(tasks)), *_next_run(target)]
    for observation, trap, was in zip(campaign.observations, traps, before, strict=True):
        if (marks / observation.attack.name).exists():
            observation.harms.append("code of the task ran on the host")
        if trap_times(trap) != was:
            observation.harms.append("something on the host followed a link of the task's")
    campaign.harms += target.broken_objects()
    clean_up(target, campaign.harms)
    return campaign


def _in_pods() -> bool:
    return os.environ.get("ORCHESTRATOR_ENGINE") == "kubernetes"


@contextmanager
def _services() -> Iterator[dict[str, str]]:
    """Serve on the host for attacks; pods find the lab's hub, and policies keep them from it."""
    with ExitStack() as stack:
        if _in_pods():
            stack.enter_context(enforced(Lab(Path(os.environ[LAB]))))
        yield stack.enter_context(host_services(HUB if _in_pods() else None))


def variables(target: Target, marks: Path, attack: Attack) -> dict[str, str]:
    """Return the variables of an attack's task."""
    mark = marks / attack.name
    return {"MARK": str(mark), "TRAP": f"{mark}.trap", **target.private}


def set_trap(marks: Path, attack: Attack) -> Path:
    """Create a directory on the host that nothing must read."""
    trap = marks / f"{attack.name}.trap"
    (trap / "below").mkdir(parents=True)
    (trap / "secret").write_text("CANARY-host-secret\n")
    now = time.time()
    for path in (trap / "secret", trap / "below", trap):
        # Accessed before modified: `relatime` file systems then record the next access.
        os.utime(path, (now - 1000, now - 500))
    return trap


def trap_times(trap: Path) -> list[tuple[int, int]]:
    """Return the times of a trap, which change when a program reads it."""
    infos = [path.stat() for path in (trap, trap / "below", trap / "secret")]
    return [(info.st_atime_ns, info.st_mtime_ns) for info in infos]


@dataclass
class _Done:
    harms: list[str]
    results: list[dict[str, Any]]
    run_directory: Path


def _orchestrate(target: Target, tasks: list[str], options: tuple[str, ...]) -> _Done:
    arguments = [word for task in tasks for word in ("--task", task)]
    # A bomb that succeeds must not exhaust the memory of this machine.
    bound = ("prlimit", f"--as={_ADDRESS_SPACE}")
    command = [
        *bound, target.caller.python, "-m", "orchestrator", "parallel",
        "--agent-cli", "shell", "--json", "--worktrees", target.worktrees,
        "--workers", str(min(len(tasks), SIDE_BY_SIDE)), *LIMITS, *TIME, *NETWORK, *options,
        *arguments,
    ]  # fmt: skip
    harms: list[str] = []
    out, err = (target.path.parent / f"{target.path.name}.{name}" for name in ("out", "err"))
    # Only for attacks on the secret, because the watcher constantly inspects all containers.
    watched = secret.watched_engine if secret.NAME in options else _unwatched
    with out.open("wb") as stdout, err.open("wb") as stderr, watched(target.path, harms):
        process = target.caller.popen(command, target.path, stdout=stdout, stderr=stderr)
        harms += _wait(process)
    said = out.read_text(errors="surrogateescape") + err.read_text(errors="surrogateescape")
    if commands := commands_in(out.read_text(errors="replace"), err.read_text(errors="replace")):
        harms.append(f"a CI system finds {commands[0]!r} in our output")
    if match := RAW.search(said):
        harms.append(f"a raw {match[0]!r} in our output")
    if len(said) > 5_000_000:
        harms.append(f"{len(said)} characters of output")
    if any(word in said for word in ("CANARY-host", "CANARY-private", secret.VALUE)):
        harms.append("a secret in our output")
    runs = target.path / ".git" / "orchestrator" / "runs"
    try:
        report = json.loads(out.read_text(), parse_constant=_refuse)
        return _Done(harms, report["results"], runs / report["run_id"])
    except (ValueError, KeyError) as error:
        return _Done([*harms, f"no report ({error}): {err.read_text()[-2000:]}"], [], runs)


@contextmanager
def _unwatched(repository: Path, harms: list[str]) -> Iterator[None]:  # noqa: ARG001
    yield


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _wait(process: subprocess.Popen[bytes]) -> list[str]:
    longest = LONGEST * (3 if _in_pods() else 1)
    deadline, peak = time.monotonic() + longest, 0
    while time.monotonic() < deadline:
        peak = max(peak, high_water(process.pid))
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            return [f"we took {peak >> 20} MiB"] if peak > MOST_MEMORY else []
    process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return [f"the run still went on after {longest:.0f} s"]


def _look(campaign: Campaign, target: Target, done: _Done) -> None:
    results = done.results
    campaign.mode = "bind" if list(done.run_directory.glob("worker-*/copy")) else "overlay"
    kept = _kept_refs(done.run_directory.name, results)
    campaign.harms += [*target.harms(len(results), kept), *secret.kept_in(done.run_directory)]
    sibling = results[-1]
    if sibling["status"] != "success" or sibling["files_modified"] != ["sibling.txt"]:
        campaign.harms.append(f"the sibling's work did not arrive: {sibling['message']}")
    for observation, result in zip(campaign.observations, results, strict=False):
        number = result["worker_id"]
        log = _log(done.run_directory / f"worker-{number}" / "stdout.log")
        if _in_pods():
            # Policies drop packets outside of the pod: what counts is what is reached.
            log = re.sub("(?m)^REPORT sent=.*$", "", log)
        message = result["message"] or ""
        observation.outcome = f"{result['status']} {result['reason'] or ''}: {message}"
        observation.harms += [
            *target.worktree_harms(number),
            *observation.attack.broken_rules(log),
            *_verdict(observation.attack, result),
            *_arrival(observation.attack, target, result),
        ]


def _kept_refs(run_id: str, results: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the kept refs that the results name and that belong to their worker."""
    return {
        ref
        for result in results
        for ref in result["kept_refs"]
        if ref.startswith(f"refs/orchestrator/kept/{run_id}/{result['worker_id']}/")
    }


def _log(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _verdict(attack: Attack, result: dict[str, Any]) -> list[str]:
    message = result["message"] or ""
    found = []
    is_sent = os.environ.get("ORCHESTRATOR_TRANSFER") == "streams"
    expected = attack.sent if is_sent and attack.sent else (attack.status, attack.reason)
    if (result["status"], result["reason"]) != expected:
        found.append(f"ended {result['status']} ({result['reason']}): {message}")
    found += [
        f"the message does not say `{wanted}`: {message}"
        for wanted in (attack.refused, attack.note)
        if wanted is not None and not re.search(wanted, message)
    ]
    if attack.within is not None and result["duration"] > attack.within:
        found.append(f"dead only after {result['duration']} s")
    if len(message) > 5000:
        found.append(f"a message of {len(message)} characters")
    return found


def _arrival(attack: Attack, target: Target, result: dict[str, Any]) -> list[str]:
    """Return what is wrong with the branch and the honest work of an attacker."""
    branch = result["branch"]
    base = target.refs["refs/heads/main"]
    if target.git("rev-parse", branch) != result["commit"]:
        return ["the branch is not where the result says"]
    if "CANARY" in target.git("log", "--format=", "--patch", "--no-textconv", f"{base}..{branch}"):
        return ["something that it was not given is on its branch"]
    if not attack.honest:
        return []
    try:
        arrived = target.git("cat-file", "-p", f"{branch}:{HONEST}") == "honest"
    except AssertionError:
        arrived = False
    checked_out = target.worktrees == "none" or (
        (target.worktree(result["worker_id"]) / HONEST).exists()
    )
    return [] if arrived and checked_out else ["its honest work did not arrive"]


@contextmanager
def _meanwhile(target: Target, workers: int, harms: list[str]) -> Iterator[None]:
    """Run git commands of the user while the run is in progress."""
    places = [str(target.path), *(str(target.worktree(n)) for n in range(1, workers + 1))]
    command = ["sh", str(SCRIPTS / "meanwhile.sh"), *places]
    process = target.caller.popen(
        command, target.path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: harms.extend(_lines(process)))
    reader.start()
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        reader.join()
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.read().decode(errors="replace").splitlines()


def next_steps(target: Target, workers: int, *, patience: float = 600) -> list[str]:
    """Run git commands of the user after the run, and return the harms."""
    places = [str(target.worktree(n)) for n in range(1, workers + 1)] + [str(target.path)]
    script = str(SCRIPTS / "next.sh")
    try:
        said = target.caller.run("sh", script, *places, cwd=target.path, timeout=patience)
    except subprocess.TimeoutExpired:
        said = "git does not come back"
    main = target.git("log", "--format=%H", "main").splitlines()
    lost = [] if target.refs["refs/heads/main"] in main else ["main lost its commit"]
    return said.splitlines() + lost


def _next_run(target: Target) -> list[str]:
    """Plan another run, and check that it takes no settings from a worker's branch."""
    command = (target.caller.python, "-m", "orchestrator", "parallel", "--dry-run", "--json", "x")
    planned = target.caller.run(*command, cwd=target.path)
    return ["the next run takes a worker's settings"] if "PWNED" in planned else []
