"""Run a program with `setpriv`, so that the files it creates belong to another user."""

from collections.abc import Sequence


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
