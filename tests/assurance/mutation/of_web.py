"""Protections of the web view: who is answered, and what text of workers can do on a page."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Unwrap,
    Without,
)

_ACCESS = "tests/faces/web/test_access_control.py"
_PAGES = "tests/faces/web/test_pages.py"
_LOGS = "tests/faces/web/test_logs.py"
_ACTIONS = "tests/faces/web/test_actions.py"
_SERVER = "tests/faces/web/test_server.py"
_PEER = "tests/faces/web/test_connection_owner.py"
_ARTIFACTS = "tests/faces/web/test_artifacts.py"
_ANSI = "tests/faces/web/test_ansi.py"
_ATOMIC = "tests/base/files/test_atomic.py"


def web() -> Iterator[Protection]:
    """Return the protections of the web view."""
    yield from marked(
        (_ACCESS, f"{_ACTIONS} {_SERVER} {_PEER} {_ATOMIC}"),
        ("link works once", Without("not self._unused")),
        ("link's key is compared", Without("not is_right")),
        ("session is required", Never()),
        ("session is compared", Without("self._sessions.is_open(value)")),
        ("cookie is for this port only",
         Replace("f'orchestrator-ui-{port or secrets.token_hex(4)}'", "'orchestrator-ui'")),
        ("cookie is for this socket only",
         Replace("secrets.token_hex(4)", "'socket'", at="cookie-is-for-this-port-only")),
        ("cookie is hidden from scripts", Give("httponly=False")),
        ("cookie is not sent from other sites", Give("samesite='none'")),
        ("host is compared", Never()),
        ("host occurs once",
         Instead("not hosts"), "the server program refuses a request with two hosts"),
        ("methods other than GET and POST refused", Never()),
        ("addresses with other characters refused",
         Without("not _PATH.fullmatch(path)", at="only-plain-requests-are-answered")),
        ("long addresses refused",
         Without("len(path) > _MOST_PATH", at="only-plain-requests-are-answered")),
        ("upgrades refused",
         Without("'upgrade' in headers", at="only-plain-requests-are-answered")),
        ("form of another origin refused", Without("headers.getlist('origin') != [own]")),
        ("form without fetch metadata refused",
         Without("headers.get('sec-fetch-site') != 'same-origin'")),
        ("form without the session's token refused", Never()),
        ("token depends on the session", Replace("session.encode()", "b''")),
        ("embedded by another site refused", Never()),
        ("large body by its length refused",
         Without("int(length) > MOST_SENT"), "the body is refused while it arrives"),
        ("large body refused while it arrives", Never()),
        ("only files of the package are cached", Without("_PUBLIC.fullmatch(path) is not None")),
        ("headers are on every answer", Remove()),
        ("stored sessions are digests", Instead("session")),
        ("private files are for their owner only", Replace("access.mode", "0o644")),
        ("private files are newly created", Without("os.O_EXCL")),
        ("private files belong to the named user", Remove()),
        ("other users of the machine are refused", Always()),
        ("connections that their program closed are refused", Instead("int(row[7])")),
    )  # fmt: skip
    yield from marked(
        (_ACCESS, f"{_ACTIONS} {_SERVER} {_PEER} {_ATOMIC}"),
        ("read-only view has no actions",
         Instead("[setattr(self, '_actions', Actions()), *self._action_routes()][1:]")),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/web/test_diffs.py",),
        ("lexers have a limit of time", Without("timeout")),
        ("number of coloured spans limited", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/web/test_diffs.py",),
        ("words of long lines are not compared", Replace("_MOST_WORDS", "10 ** 9")),
        ("compared words of a page limited", Always()),
    )  # fmt: skip
    yield from marked(
        (f"{_PAGES} {_LOGS} {_ANSI} {_ARTIFACTS}", f"{_ACTIONS} {_SERVER}"),
        ("templates escape text", Give("autoescape=False")),
        ("only files with names of logs are served", Without("not _NAME.fullmatch(stem)")),
        ("links instead of logs are not followed",
         Replace("open_regular(place / name)", "(place / name).open('rb')")),
        ("pieces of logs have a limit", Instead("0")),
        ("new output has a limit", Never()),
        ("control characters in logs are visible", Unwrap("lines")),
        ("control characters in coloured logs are visible",
         Replace("lines(before.text[:-1] if ends else before.text)", "before.text")),
        ("number of coloured parts has a limit", Instead("((), runs)")),
        ("number of times on page has a limit", Never()),
        ("searches of logs end in time", Never()),
        ("artifacts are below their directory", Without("'..' in parts")),
        ("links in the path of an artifact are not followed", Without("os.O_NOFOLLOW")),
        ("links instead of artifacts are not followed",
         Instead("os.fdopen(os.open(parts[-1], os.O_RDONLY, dir_fd=folder), 'rb')")),
        ("names of downloads are harmless", Instead("self.path")),
        ("merge only from where the preview was", Never()),
        ("values of forms cannot be options", Replace("f'{self.flag}={text}'", "text")),
        ("values of forms cannot be arguments", Never()),
        ("workers of forms are numbers", Instead("found")),
        ("only previewed commands are started", Never()),
        ("commands of browsers are bounded", Never()),
        ("forms start one command", Never()),
        ("messages are not recorded by the web view", Instead("self.line(given)")),
        ("messages are not arguments", Instead("self.command(given)")),
        ("comments are bounded", Never()),
        ("comments fit in one message", Never()),
        ("comments are not run as commands", Never()),
        ("repository provides no modules", Without("'-P'")),
        ("preview changes nothing", Without("dry_run")),
        ("server listens on loopback only", Instead("'0.0.0.0'")),
        ("socket is for its owner only", Replace("0o177", "0")),
        ("export replaces only an export", Never()),
    )  # fmt: skip
