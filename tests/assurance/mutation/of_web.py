"""Protections of the web view: who is answered, and what text of workers can do on a page."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_ACCESS = "tests/web/test_access_control.py"
_PAGES = "tests/web/test_pages.py"
_LOGS = "tests/web/test_logs.py"
_ACTIONS = "tests/web/test_actions.py"
_SERVER = "tests/web/test_server.py"
_PEER = "tests/web/test_connection_owner.py"
_ARTIFACTS = "tests/web/test_artifacts.py"
_ANSI = "tests/web/test_ansi.py"
_ATOMIC = "tests/files/test_atomic.py"


def web() -> Iterator[Protection]:
    """Return the protections of the web view."""
    yield from patches(
        "web/access_control.py web/app.py web/connection_owner.py files/atomic.py",
        (_ACCESS, f"{_ACTIONS} {_SERVER} {_PEER} {_ATOMIC}"),
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
        ("only files of the package are cached",
         "return _PUBLIC.fullmatch(path) is not None and bool(", "return bool("),
        ("headers are on every answer", "headers[name] = value", "pass"),
        ("stored sessions are digests",
         '"".join(f"{digest}\\n" for digest in self._digests)', "session"),
        ("private files are for their owner only",
         "os.fchmod(made, access.mode)", "os.fchmod(made, 0o644)"),
        ("private files are newly created", "os.O_CREAT | os.O_EXCL", "os.O_CREAT"),
        ("private files belong to the named user",
         "os.fchown(made, access.user, access.group)", "pass"),
        ("other users of the machine are refused",
         "peer_uid(connection) in (os.getuid(), _ROOT)", "True"),
        ("connections that their program closed are refused",
         "return None if row[9] == _ORPHAN else int(row[7])", "return int(row[7])"),
        ("read-only view has no actions",
         "        if self._actions is None:\n            return []\n",
         "        if self._actions is None:\n            self._actions = Actions(repr)\n"),
    )  # fmt: skip
    yield from patches(
        "web/highlight.py", ("tests/web/test_diffs.py",),
        ("lexers have a limit of time", "timeout=_LIMITS.time, check=True,", "check=True,"),
        ("number of coloured spans limited", "if room <= 0:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "web/diffs.py", ("tests/web/test_diffs.py",),
        ("words of long lines are not compared", "> _MOST_WORDS:", "> 10**9:"),
        ("compared words of a page limited", "return self.pairs >= 0", "return True"),
    )  # fmt: skip
    yield from patches(
        "web/rendering.py web/logs.py web/ansi.py web/artifacts.py web/merge_pages.py "
        "web/actions.py web/server.py web/export.py",
        (f"{_PAGES} {_LOGS} {_ANSI} {_ARTIFACTS}", f"{_ACTIONS} {_SERVER}"),
        ("templates escape text", "autoescape=True", "autoescape=False"),
        ("only files with names of logs are served", "or not _NAME.fullmatch(stem):", ":"),
        ("links instead of logs are not followed",
         "            with open_regular(directory / name) as file:",
         "            with (directory / name).open('rb') as file:"),
        ("pieces of logs have a limit", "begin = max(0, end - most)", "begin = 0"),
        ("new output has a limit", "if log.size - begin > CHUNK:", "if False:"),
        ("control characters in logs are visible", 'return (Run("", lines(text)),) if text',
         'return (Run("", text),) if text'),
        ("control characters in coloured logs are visible",
         "yield Run(before.look, lines(before.text[:-1] if ends else before.text))",
         "yield Run(before.look, before.text)"),
        ("number of coloured parts has a limit",
         "plain, coloured = runs[:-MOST_RUNS], runs[-MOST_RUNS:]", "plain, coloured = (), runs"),
        ("searches of logs end in time", "if time.monotonic() > until:", "if False:"),
        ("artifacts are below their directory", ' or ".." in parts:', ":"),
        ("links in the path of an artifact are not followed",
         "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW", "os.O_RDONLY | os.O_DIRECTORY"),
        ("links instead of artifacts are not followed",
         "return open_regular(parts[-1], folder=folder)",
         "return os.fdopen(os.open(parts[-1], os.O_RDONLY, dir_fd=folder), 'rb')"),
        ("names of downloads are harmless",
         'plain = _UNUSUAL.sub("_", Path(self.path).name).strip("._")', "plain = self.path"),
        ("merge only from where the preview was",
         'if _one(fields, "before", "") != preview.before:', "if False:"),
        ("preview changes nothing", "named=True, dry_run=True)", "named=True)"),
        ("server listens on loopback only", '_LOOPBACK = "127.0.0.1"', '_LOOPBACK = "0.0.0.0"'),
        ("socket is for its owner only", "os.umask(0o177)", "os.umask(0)"),
        ("export replaces only an export",
         'if names and "app.css" not in names:', "if False:"),
    )  # fmt: skip
