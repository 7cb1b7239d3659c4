"""The web view without a socket, and runs whose files are written by hand."""

import asyncio
import http.client
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

from orchestrator.base.events import Event, RunStarted, WorkerDone, WorkerPreparing, WorkerStarted
from orchestrator.base.results import Status, WorkerResult, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.web.access_control import AccessControl, Sessions
from orchestrator.faces.web.actions import Actions
from orchestrator.faces.web.app import Web
from orchestrator.faces.web.commands import Commands
from orchestrator.faces.web.run_catalog import LiveUsage, RunCatalog
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory
from tests.support.cli import start
from tests.support.reports import BASE, RUN_ID, at

PORT = 8123
OPENED: list[RunCatalog] = []
"""Catalogs of runs that a fixture closes."""
HOST = f"127.0.0.1:{PORT}"
HOSTILE_TEXTS = [
    "<script>alert(1)</script>", "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>", "\"><script>alert(1)</script>",
    "'><script>alert(1)</script>", "\" onmouseover=alert(1) x=\"",
    "' onfocus=alert(1) autofocus '", "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>", "</pre><h1>x</h1>",
    "</span></pre></div></section><form action=//evil>", "<!--", "--><script>alert(1)</script>",
    "<![CDATA[", "]]>", "<?php echo 1 ?>", "<a href=javascript:alert(1)>x</a>",
    "javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "{{ 7 * 7 }}",
    "{% if 1 %}", "{{ site.token }}", "${alert(1)}", "`alert(1)`",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;script&#62;", "<iframe src=//evil>",
    "<base href=//evil>", "<meta http-equiv=refresh content=0>",
    "<link rel=stylesheet href=//evil>", "<style>*{display:none}</style>", "<object data=//evil>",
    "<embed src=//evil>", "<math><mi//xlink:href=\"data:x,<script>alert(1)</script>\">",
    "<details open ontoggle=alert(1)>", "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>", "<video><source onerror=alert(1)>",
    "<marquee onstart=alert(1)>", "<template><script>alert(1)",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<x onclick=alert(1)>click", "<div data-keep data-live data-source=//evil>",
    "<span data-since=0>", "<main id=content>",
    "<svg><use href=\"data:image/svg+xml,<svg id=x>\"></svg>", "<table><td>", "<select><option>",
    "<plaintext>", "<xmp>", "<frameset>", "\u202e<script>", "\x1b]0;title\x07", "a\x00b", "a\rb",
    "\u2028alert(1)", "<\u200bscript>", "https://evil.example/?x=" + "a" * 300, "%3Cscript%3E",
]  # fmt: skip
"""Texts that a page could take for its own parts."""


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Browser:
    """Sends requests as a browser does that loaded a page of the server."""

    guarded: AccessControl
    jobs: Commands = field(default_factory=Commands)
    """The commands that the server started."""
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        """Load a page; `sec_fetch_site="cross-site"` sets a header, and "" removes it."""
        usual = {"host": HOST, "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
        return self.ask("GET", path, {**usual, **_named(headers)})

    def post(self, path: str, fields: Mapping[str, Any] | bytes, **headers: str) -> Answer:
        """Send a form."""
        body = fields if isinstance(fields, bytes) else urlencode(fields, doseq=True).encode()
        usual = {
            "host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin",
            "content-length": str(len(body)),
        }  # fmt: skip
        return self.ask("POST", path, {**usual, **_named(headers)}, body)

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Send a request with the cookie and these headers, but not those without a value."""
        cookie = {"cookie": self.cookie} if self.cookie else {}
        sent = {**cookie, **headers}
        pairs = [(n.lower().encode(), v.encode()) for n, v in sent.items() if v]
        return asyncio.run(_answer(self.guarded, method, path, pairs, body))

    def sign_in(self, key: str) -> Answer:
        """Use a link."""
        answer = self.post("/open", key.encode())
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def token(self, path: str) -> str:
        """Return the token of the form on a page."""
        return self.hidden(path).get("token", "")

    def hidden(self, path: str) -> dict[str, str]:
        """Return what the forms of a page send unseen: the token, and the ticket of the page."""
        page = self.get(path).text
        return dict(re.findall(r'type="hidden" name="(token|once)" value="(\w+)"', page))


def previewed(page: str) -> dict[str, str]:
    """Return the fields by which the form of a merge names the commits of its preview."""
    return dict(re.findall(r'type="hidden" name="(before|after)" value="(\w+)"', page))


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def _answer(
    guarded: AccessControl, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> Answer:
    target, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "path": unquote(target), "raw_path": target.encode(), "query_string": query.encode(),
        "headers": headers, "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1),
        "scheme": "http", "root_path": "",
    }  # fmt: skip
    sent: list[Any] = []
    pieces = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if pieces:
            return pieces.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await guarded(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))


class Server:
    """A running `orchestrator ui`."""

    def __init__(self, repo: Path, *options: str, state: Path) -> None:
        environ = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.process = start(
            "ui", *options, cwd=repo, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        text = line if isinstance(line, str) else line.decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/open#(\S+)", text)
        assert found, text
        self.port, self.key = int(found[1]), found[2]

    def ask(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        self.cookie = answer.getheader("Set-Cookie") or ""
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            return connection.recv(100)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


def stranger(
    repo: Path,
    *,
    read_only: bool = False,
    usage: LiveUsage | None = None,
    port: int | None = PORT,
    **sessions: Any,
) -> tuple[Browser, Sessions]:
    """Return a browser without a session, and the sessions of its server."""
    opened = Sessions(**sessions)
    actions = Actions()
    catalog = RunCatalog([_repository(repo)], usage)
    OPENED.append(catalog)
    web = Web(catalog, opened, None if read_only else actions)
    return Browser(web.with_access_control(port), actions.commands), opened


@cache
def _repository(repo: Path) -> Repository:
    return Repository(repo)


def browser(repo: Path, *, read_only: bool = False, usage: LiveUsage | None = None) -> Browser:
    """Return a browser that used the link."""
    found, sessions = stranger(repo, read_only=read_only, usage=usage)
    assert found.sign_in(sessions.key).status == 204
    return found


# --- Runs written by hand.


def result_of(number: int, **rest: Any) -> WorkerResult:
    """Return the result of a worker."""
    values = {
        "worker_id": number, "branch": f"architect/parallel-{number}", "model": "default",
        "status": Status.SUCCESS, "duration": 5.0, "started_at": at(2), "worktree_path": "",
    }  # fmt: skip
    return WorkerResult(**{**values, **rest})


def write_run(
    repo: Path, specs: Sequence[WorkerSpec], events: Iterable[Event], *, run_id: str = RUN_ID
) -> RunDirectory:
    """Write a run whose process is gone."""
    run = RunDirectory(repo / ".git" / "orchestrator" / "runs" / run_id)
    workers = ",".join(spec.model_dump_json() for spec in specs)
    run.create(
        f'{{"run_id": "{run_id}", "created_at": "{at(0).isoformat()}", "top": "{repo}", '
        f'"base": "{BASE}", "engine": "docker", "workers": [{workers}]}}'
    )
    for event in events:
        run.log_event(event)
    return run


def ended_run(
    repo: Path, *results: WorkerResult, task: str = "do it", run_id: str = RUN_ID
) -> RunDirectory:
    """Write a run with these results."""
    specs = [WorkerSpec(worker_id=one.worker_id, task=task, model=one.model) for one in results]
    run = write_run(repo, specs, begun(specs), run_id=run_id)
    for one in results:
        run.write_result(one)
        run.log_event(WorkerDone(at=at(8), result=one))
    run.write_run_result(
        sum_up(results, run_id=run.run_id, base=BASE, engine="docker", duration=8.0)
    )
    run.release()
    return run


def begun(specs: Sequence[WorkerSpec]) -> list[Event]:
    """Return the events of workers that run."""
    found: list[Event] = [
        RunStarted(at=at(0), run_id=RUN_ID, base=BASE, workers=tuple(specs), slots=2)
    ]
    for spec in specs:
        found.append(WorkerPreparing(at=at(1), worker_id=spec.worker_id))
        found.append(WorkerStarted(at=at(2), worker_id=spec.worker_id, container="c"))
    return found


class Shape(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())
