"""Decide which requests are answered: only requests of the browser that opened the one-time link.

Any program of this machine can reach a port of 127.0.0.1, and any web page can make a browser send
requests there. Therefore a request must have this server's address as `Host`, come from the browser
that opened the one-time link, and, if it changes something, from a page of this server.
"""

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.safe_open import read_limited

OPEN = "/open"
"""Path of the one-time link, to which the link's page sends its key."""
MOST_SENT = 64 * 1024
"""Maximum number of bytes of a request's body."""
_PUBLIC = re.compile(r"/static/[a-z_]+\.(css|js|svg)")
_VERSION = re.compile(rb"[0-9a-f]{16}")
_CACHED = "max-age=31536000, immutable"
"""Value of `Cache-Control` for style sheets and scripts, whose addresses change with their content:
browsers load them only once, even if Docker changes the machine's networks meanwhile.
"""
_PATH = re.compile(r"(/[A-Za-z0-9._-]*)+")
_MOST_PATH = 400
_ANY_PORT = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
_MOST_SESSIONS = 20
_STORED = re.compile(r"[0-9a-f]{64}")
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, browsers send forms with the origin `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Sessions:
    """The key of the one-time link, and the sessions that were opened with it. Thread-safe."""

    def __init__(self, store: Path | None = None) -> None:
        """Create the key of the one-time link, and read the stored sessions.

        Args:
            store: File with the digests of sessions, so that browsers stay signed in if the server
                is restarted at the same port. Default: sessions end with the server.
        """
        self.key = secrets.token_urlsafe(32)
        self._unused = True
        self._store = store
        self._digests = _read(store)
        self._lock = threading.Lock()

    def open(self, key: str) -> str | None:
        """Return a new session if the key is right and was not used before, else None."""
        with self._lock:
            is_right = hmac.compare_digest(key.encode(), self.key.encode())
            # protection: link-works-once
            # protection: links-key-is-compared
            if not is_right or not self._unused:
                return None
            self._unused = False
            session = secrets.token_urlsafe(32)
            self._digests = [*self._digests, _digest(session)][-_MOST_SESSIONS:]
            if self._store is not None:
                self._store.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # protection: stored-sessions-are-digests
                stored = "".join(f"{digest}\n" for digest in self._digests)
                write_private(self._store, stored.encode())
            return session

    def is_open(self, session: str) -> bool:
        """Return whether a browser's session was opened with a key of this server."""
        digest = _digest(session)
        return any(hmac.compare_digest(digest, known) for known in self._digests)


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _read(store: Path | None) -> list[str]:
    if store is None:
        return []
    try:
        lines = read_limited(store, most=MOST_SENT).decode("ascii", "replace").split()
    except OSError:
        return []
    return [line for line in lines if _STORED.fullmatch(line)][-_MOST_SESSIONS:]


def form_token(session: str) -> str:
    """Return the token that the forms sent in a session must contain, against forged requests."""
    # protection: token-depends-on-session
    return hmac.new(session.encode(), b"form", "sha256").hexdigest()


class AccessControl:
    """Refuses requests that may not come from the browser that opened the one-time link."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: Sessions,
        port: int | None,
        locked: Callable[[], str],
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            sessions: The open sessions.
            port: The port of 127.0.0.1; None for a Unix socket, which `ssh -L` may map to any port.
            locked: Returns the page for a browser without a session.
        """
        self._app = app
        self._sessions = sessions
        self._port = port
        self._locked = locked
        # Several sockets may be mapped to ports of one machine, and come from several machines.
        # protection: cookie-is-for-this-port-only
        self.cookie = f"orchestrator-ui-{port or secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            # Neither WebSockets nor the start of a server are offered here.
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    # protection: headers-are-on-every-answer
                    headers[name] = value
                if message["status"] == 200 and _is_versioned(scope):
                    headers["Cache-Control"] = _CACHED
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response that refuses a request; None if the request is allowed."""
        headers = Headers(scope=scope)
        # protection: methods-other-than-get-and-post-refused
        if scope["method"] not in ("GET", "POST"):
            return _refuse(405, "only GET and POST are allowed", {"Allow": "GET, POST"})
        # protection: host-is-compared
        if not self._is_host(headers):
            return _refuse(421, "this server has another name")
        path = scope.get("raw_path", b"").decode("latin-1")
        # protection: only-plain-requests-are-answered
        if len(path) > _MOST_PATH or not _PATH.fullmatch(path) or "upgrade" in headers:
            return _refuse(400, "the address is not valid")
        if scope["method"] == "POST":
            own = f"http://{headers['host']}"
            # protection: form-of-another-origin-refused
            # protection: form-without-fetch-metadata-refused
            if headers.getlist("origin") != [own] or headers.get("sec-fetch-site") != "same-origin":
                return _refuse(403, "the request comes from another site")
            length = headers.get("content-length", "")
            # protection: large-body-by-its-length-refused
            if not length.isdecimal() or int(length) > MOST_SENT:
                return _refuse(413, "the request is too large")
            return None if path == OPEN else self._refusal_of_stranger(scope, headers)
        # protection: embedded-by-another-site-refused
        site = headers.get("sec-fetch-site", "none")
        is_from_here = site in ("same-origin", "none")
        if not is_from_here and headers.get("sec-fetch-mode") != "navigate":
            return _refuse(403, "the request comes from another site")
        if path == OPEN:
            return Response(self._locked(), 200, media_type="text/html")
        if _PUBLIC.fullmatch(path):
            return None
        return self._refusal_of_stranger(scope, headers)

    def _is_host(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        # protection: host-occurs-once
        if len(hosts) != 1:
            return False
        if self._port is None:
            return _ANY_PORT.fullmatch(hosts[0]) is not None
        return hosts[0] in (f"127.0.0.1:{self._port}", f"localhost:{self._port}")

    def _refusal_of_stranger(self, scope: Scope, headers: Headers) -> Response | None:
        session = self.session(headers)
        if session is None:
            return Response(self._locked(), 401, media_type="text/html")
        scope["session_token"] = form_token(session)
        return None

    def session(self, headers: Headers) -> str | None:
        """Return the session in a request's cookie; None if there is no open session."""
        # Other programs of this host name have set cookies of any form; a parser of the standard
        # library leaves out all cookies after one that it cannot read.
        parts = (part.strip() for line in headers.getlist("cookie") for part in line.split(";"))
        named = (part.partition("=") for part in parts)
        values = [value for name, _, value in named if name == self.cookie]
        # protection: session-is-compared
        return next((value for value in values if self._sessions.is_open(value)), None)


def _is_versioned(scope: Scope) -> bool:
    path = scope["raw_path"].decode("latin-1")
    # protection: only-files-of-package-are-cached
    return _PUBLIC.fullmatch(path) is not None and bool(_VERSION.fullmatch(scope["query_string"]))


def _refuse(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status, headers=dict(headers or {}))
