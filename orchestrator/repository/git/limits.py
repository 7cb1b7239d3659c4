"""Command lines that limit the resources of a process, or create files for another user."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits of a process that reads a worker's data."""

    memory: int
    """Maximum private memory in bytes (`RLIMIT_DATA`), without the page cache and packs that git
    maps.
    """
    cpu: int
    """Maximum CPU time in seconds."""
    time: float
    """Maximum number of seconds from the start of the process to its end."""

    def around(self, command: Sequence[str]) -> list[str]:
        """Return a command line that sets the resource limits and then executes `command`.

        A shell sets the limits, so they hold from the command's first instruction, at a cost of 2
        ms. Python's `preexec_fn` would be unsafe, because other threads are running.
        """
        data = _at_most(resource.RLIMIT_DATA, self.memory) // 1024
        cpu = _at_most(resource.RLIMIT_CPU, self.cpu)
        return ["/bin/sh", "-c", _LIMITED, str(data), str(cpu), *command]


# Soft and hard limit are equal, so that the kernel kills the process with SIGKILL, without a core.
# protection: memory-limit-of-processes-that-read-workers-objects
# protection: cpu-limit-of-processes-that-read-workers-objects
_LIMITED = 'ulimit -d "$0" && ulimit -t "$1" && shift && exec "$@"'


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or this process's own hard limit if that is lower."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


UNTRUSTED = Limits(memory=768 * 1024**2, cpu=240, time=300.0)
"""Limits of every process that reads a worker's objects, trees or commits."""


def creating_for(owner: tuple[int, int] | None, command: Sequence[str]) -> list[str]:
    """Return a command line that executes `command`, whose new files belong to `owner`.

    Only the effective ids change: with root's real uid, the process keeps root's access to the
    repository, and no process of `owner` may send signals to it.

    Args:
        owner: uid and gid. None: the caller's.
        command: The command line.
    """
    if owner is None:
        return [*command]
    uid, gid = owner
    groups = (f"--euid={uid}", f"--egid={gid}", "--clear-groups")
    access = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return ["setpriv", *groups, *access, "--", *command]
