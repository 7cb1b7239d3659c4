"""Protections of the web view: who is answered, and what text of workers can do on a page."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_DOOR = "tests/web/test_door.py"
_PAGES = "tests/web/test_pages.py"
_LOGS = "tests/web/test_logs.py"
_ACTIONS = "tests/web/test_actions.py"
_SERVER = "tests/web/test_server.py"


def web() -> Iterator[Protection]:
    """Return the protections of the web view."""
    yield from patches(
        "web/door.py web/app.py",
        (_DOOR, f"{_ACTIONS} {_SERVER}"),
        ("link works once", "if not is_right or not self._unused:", "if not is_right:"),
        ("link's key is compared", "if not is_right or not self._unused:",
         "if not self._unused:"),
        ("session is required", "        if session is None:\n", "        if False:\n"),
        ("session is compared", "return cookie.value if cookie and self._sessions.is_open("
         "cookie.value) else None", "return cookie.value if cookie else None"),
        ("cookie is for this port only", 'f"orchestrator-ui-{port}" if port',
         '"orchestrator-ui" if port'),
        ("cookie is hidden from scripts", "httponly=True", "httponly=False"),
        ("cookie is not sent from other sites", 'samesite="strict"', 'samesite="none"'),
        ("host is compared", "if not self._is_host(headers):", "if False:"),
        ("host occurs once", "if len(hosts) != 1:", "if not hosts:",
         "the server program refuses a request with two hosts"),
        ("methods other than GET and POST refused",
         'if scope["method"] not in ("GET", "POST"):', "if False:"),
        ("addresses with other characters refused", "or not _PATH.fullmatch(path) ", ""),
        ("long addresses refused", "len(path) > _MOST_PATH or ", ""),
        ("upgrades refused", ' or "upgrade" in headers', ""),
        ("form of another origin refused", 'headers.getlist("origin") != [own] or ', ""),
        ("form without fetch metadata refused",
         ' or headers.get("sec-fetch-site") != "same-origin"', ""),
        ("form without the session's token refused",
         'if not token or fields.get("token") != [token]:', "if False:"),
        ("token depends on the session", 'hmac.new(session.encode(), b"form", "sha256")',
         'hmac.new(b"", b"form", "sha256")'),
        ("embedded by another site refused", "        if not _may_read(headers):\n",
         "        if False:\n"),
        ("large body by its length refused", " or int(length) > MOST_SENT", "",
         "the body is refused while it arrives"),
        ("large body refused while it arrives", "if len(data) > MOST_SENT:", "if False:"),
        ("headers are on every answer", "headers[name] = value", "pass"),
        ("stored sessions are digests", '"".join(f"{one}\\n" for one in self._digests)', "session"),
        ("store is for its owner only", "os.O_EXCL, 0o600)", "os.O_EXCL, 0o644)"),
        ("read-only view has no actions",
         "        if self._actions is None:\n            return []\n",
         "        if self._actions is None:\n            self._actions = Actions(repr)\n"),
    )  # fmt: skip
    yield from patches(
        "web/shell.py web/logs.py web/looks.py web/run_pages.py web/landing_pages.py "
        "web/actions.py web/server.py web/export.py",
        (f"{_PAGES} {_LOGS}", f"{_ACTIONS} {_SERVER}"),
        ("templates escape text", "autoescape=True", "autoescape=False"),
        ("only files with names of logs are served", "or not _NAME.fullmatch(stem):", ":"),
        ("links instead of logs are not followed",
         "            with open_regular(directory / name) as file:",
         "            with (directory / name).open('rb') as file:"),
        ("pieces of logs have a limit", "begin = max(0, end - CHUNK)", "begin = 0"),
        ("new output has a limit", "if log.size - begin > CHUNK:", "if False:"),
        ("control characters in logs are visible",
         'return lines(data.decode("utf-8", "replace"))', 'return data.decode("utf-8", "replace")'),
        ("merge only from where the preview was",
         'if _one(fields, "before", "") != preview.before:', "if False:"),
        ("preview changes nothing", "named=True, dry_run=True)", "named=True)"),
        ("server listens on loopback only", '_LOOPBACK = "127.0.0.1"', '_LOOPBACK = "0.0.0.0"'),
        ("socket is for its owner only", "os.umask(0o177)", "os.umask(0)"),
        ("export replaces only an export",
         'if has_files and not (directory / "app.css").is_file():', "if False:"),
    )  # fmt: skip
