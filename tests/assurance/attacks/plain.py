"""The same attacks on plain `docker run -v` as root, without an orchestrator.

Some attacks would make this machine unusable without `BOUNDS`, which the page names.
"""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import docker.errors

from tests.assurance.attacks import secret
from tests.assurance.attacks.attack import Attack
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.campaign import (
    RAW,
    Observation,
    next_steps,
    set_trap,
    trap_times,
    variables,
)
from tests.assurance.attacks.service import host_services
from tests.assurance.attacks.target import Target, make_target

IMAGE = "orchestrator/base:latest"
DEADLINE = 25.0
"""Maximum duration of a task, in seconds."""
_PATIENCE = 12.0
"""Maximum duration of each git command after the task, in seconds."""
_MANAGED = ("--label", "orchestrator.managed=true")
_BOUNDS = (
    "--memory", "1g", "--memory-swap", "1g", "--pids-limit", "600",
    "--log-opt", "max-size=20m", "-e", "MOST_INOTIFY=64",
)  # fmt: skip
BOUNDS = (
    "1 GiB of memory, 600 processes, 20 MB of log, 64 inotify instances,\n"
    "  25 seconds, and 12 for a command of git afterwards"
)
_MOST_OUTPUT = 5_000_000
_MOST_MIB, _MOST_FILES = 100, 20_000
_READ = 50 << 20
_BROKEN = "git is broken"
_LISTENER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8123)"


def attack_plain(caller: Caller, place: Path, attack: Attack) -> Observation:
    """Run an attack in a container with the repository mounted, then use git as a user would."""
    target = make_target(caller, place, attack.repository)
    for number in (1, 2):
        branch = f"architect/parallel-{number}"
        target.git("worktree", "add", "-q", "-b", branch, str(target.worktree(number)), "main")
    target.remember()
    target.patience = _PATIENCE
    marks = place.parent / f"{place.name}-marks"
    marks.mkdir()
    trap = set_trap(marks, attack)
    before = trap_times(trap)
    observation = Observation(attack)
    with _network(attack) as (network, told):
        task = attack.task(told | variables(target, marks, attack))
        output = _run(target, task, network, observation)
    # The task may move its own branch.
    target.refs.pop("refs/heads/architect/parallel-1", None)
    harms = _afterwards(target, attack, output)
    if (marks / attack.name).exists():
        harms.insert(0, "code of the task ran on the host")
    if trap_times(trap) != before:
        harms.append("something on the host followed a link of the task's")
    observation.harms += [harm.replace(str(place), ".") for harm in harms]
    subprocess.run(["rm", "-rf", str(place)], check=False)
    return observation


@contextmanager
def _network(attack: Attack) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `none`, or a network of this test in which the host and another container listen."""
    if "open" not in attack.options:
        yield "none", {}
        return
    name = f"attack-plain-{secrets.token_hex(4)}"
    _docker("network", "create", *_MANAGED, name)
    try:
        run = ("run", "-d", "--rm", "--name", name, *_MANAGED, "--network", name)
        _docker(*run, "--memory", "100m", IMAGE, "python3", "-c", _LISTENER)
        gateway = _docker("network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", name)
        with host_services(gateway) as told:
            yield name, told
    finally:
        _remove(name)
        _docker("network", "rm", name)


def _docker(*arguments: str) -> str:
    command = ["docker", *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, timeout=60, text=True
    ).stdout.strip()


def _run(target: Target, task: str, network: str, observation: Observation) -> str:
    name = f"attack-plain-{secrets.token_hex(4)}"
    command = [
        "docker", "run", "--rm", "--name", name, *_MANAGED, *_BOUNDS, "--network", network,
        "-v", f"{target.path}:{target.path}", "-w", str(target.worktree(1)),
        "-e", "ORCHESTRATOR_WORKER_ID=1", "-e", f"{secret.NAME}={secret.VALUE}",
        "--add-host", "host.docker.internal:host-gateway", IMAGE, "sh", "-c", "--", task,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, timeout=DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            observation.harms.append("it never ends")
        finally:
            _remove(name)
        size = os.fstat(output.fileno()).st_size
        if size > _MOST_OUTPUT:
            observation.harms.append(f"{size >> 20} MiB of output, and the engine keeps as much")
        output.seek(0)
        return output.read(_READ).decode(errors="surrogateescape")


def _remove(name: str) -> None:
    client = docker.APIClient(version="auto", timeout=60)
    try:
        client.remove_container(name, force=True)
    except docker.errors.NotFound:
        return
    finally:
        client.close()


def _afterwards(target: Target, attack: Attack, output: str) -> list[str]:
    harms = _said(output)
    looks: tuple[Callable[[], list[str]], ...] = (
        lambda: target.harms(2),
        lambda: target.worktree_harms(1),
        lambda: attack.broken_rules(output),
        lambda: _left(target.path),
        lambda: next_steps(target, 2, patience=3 * _PATIENCE),
        target.broken_objects,
    )
    for look in looks:
        try:
            harms += look()
        except subprocess.TimeoutExpired:
            # The other commands would hang in the same way.
            return [*harms, "git does not come back"]
        except RecursionError:
            harms.append("too deep for programs to walk")
        except (AssertionError, OSError) as error:
            harms.append(f"{_BROKEN}: {error}")
    return harms


def _said(output: str) -> list[str]:
    harms = []
    if RAW.search(output):
        harms.append("it steers the terminal")
    if secret.VALUE in output:
        harms.append("a secret is in the log")
    return harms


def _left(path: Path) -> list[str]:
    """Return the files and bytes left by the task that exceed the limits of a worker."""
    listed = subprocess.run(
        ["find", str(path), "-printf", "%b\n"], capture_output=True, timeout=60, check=False
    )
    blocks = [int(line) for line in listed.stdout.split()]
    mib = sum(blocks) >> 11
    harms = [f"{mib} MiB left on the disk"] if mib > _MOST_MIB else []
    return harms + ([f"{len(blocks)} files left"] if len(blocks) > _MOST_FILES else [])
