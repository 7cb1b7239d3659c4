"""Configure every kind of program that git starts, each of which records its name in a file."""

from pathlib import Path

from tests.support.repository import git

EVENTS = """
applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg
commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive
post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite
sendemail-validate fsmonitor-watchman post-index-change
"""
PROGRAMS = """
core.fsmonitor core.editor core.pager core.sshCommand core.askPass core.gitProxy sequence.editor
core.alternateRefsCommand diff.external diff.x.textconv diff.x.command merge.x.driver
filter.x.clean filter.x.smudge gpg.program gpg.ssh.defaultKeyCommand credential.helper
interactive.diffFilter gc.recentObjectsHook trailer.x.command pager.log pager.status
uploadpack.packObjectsHook
"""
_VALUES = {"commit.gpgSign": "true", "log.showSignature": "true", "tag.gpgSign": "true"}


def tempt(repo: Path, record: Path) -> None:
    """Configure programs in a repository, as hooks of both sorts, filters, drivers and helpers.

    All are the program beside `record`, to which it appends the name that is its argument.
    """
    program = record.with_name("program")
    program.write_text(f'#!/bin/sh\necho "$1" >> {record}\nexec cat\n')
    program.chmod(0o755)
    record.touch()
    record.chmod(0o666)
    hooks = record.with_name("hooks")
    hooks.mkdir()
    lines = [f"[core]\n\thooksPath = {hooks}\n"]
    for event in EVENTS.split():
        (hooks / event).write_text(f"#!/bin/sh\nexec {program} hook-{event} < /dev/null\n")
        (hooks / event).chmod(0o755)
        lines.append(f'[hook "my={event}"]\n\tevent = {event}\n\tcommand = {program} by-{event}\n')
    with (repo / ".git" / "config").open("a") as config:
        config.writelines(lines)
    for key in PROGRAMS.split():
        git(repo, "config", key, f"{program} {key}")
    for key, value in _VALUES.items():
        git(repo, "config", key, value)
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=x diff=x merge=x\n")


def ran(record: Path) -> list[str]:
    """Return the names of the programs that have run since the last call."""
    names = sorted(set(record.read_text().split()))
    record.write_text("")
    return names
