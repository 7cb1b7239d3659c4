"""The addresses of the web view, and the functions that answer requests to them."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.web.access_control import MOST_SENT, OPEN, AccessControl, Sessions
from orchestrator.faces.web.actions import Actions, merge_page, pick_page
from orchestrator.faces.web.artifacts import artifacts_of, content
from orchestrator.faces.web.commands import MakeForm, MakeWorkerForm
from orchestrator.faces.web.comments import change_comments
from orchestrator.faces.web.form_pages import Asked, answer, job_page, place_of, place_of_new
from orchestrator.faces.web.forms import RUN_FORMS, WORKER_FORMS, can_run_again, new_run_form
from orchestrator.faces.web.logs import Log, Piece, logs_of, raw, read_after, read_before, read_rest
from orchestrator.faces.web.rendering import Page, Site, message_page, template_text
from orchestrator.faces.web.run_catalog import RunCatalog
from orchestrator.faces.web.run_pages import RUN_PAGES
from orchestrator.faces.web.runs_page import runs_page, runs_version
from orchestrator.faces.web.view import View, tick
from orchestrator.faces.web.worker_pages import WORKER_PAGES, log_page
from orchestrator.state.record.worker_view import WorkerView

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MOVING = frozenset({"", "log"})
"""Tabs of a run or worker whose pages change as time passes."""
_MOST_DIGITS = 15
_SIGNED_IN = 30 * 86_400
"""Seconds for which a browser stays signed in."""
Answer = Callable[[Request], Awaitable[Response]]


class Web:
    """Answers the requests to the web view; uses threads to read files and to start git."""

    def __init__(self, catalog: RunCatalog, sessions: Sessions, actions: Actions | None) -> None:
        """Store the arguments.

        Args:
            catalog: The runs.
            sessions: The open sessions.
            actions: Performs the actions of pages; None for pages without actions.
        """
        self._catalog = catalog
        self._sessions = sessions
        self._actions = actions
        self._site = Site(read_only=actions is None)

    def with_access_control(self, port: int | None) -> AccessControl:
        """Return the protected application for a port of 127.0.0.1; for a Unix socket if None."""
        app = Starlette(
            routes=[
                Route(OPEN, self._open, methods=["POST"]),
                Route("/static/{name}", _static),
                Route("/", self._runs),
                *self._action_routes(),
                Route("/{repository}/{run}", self._run),
                Route("/{repository}/{run}/{worker:int}", self._worker),
                Route("/{repository}/{run}/{worker:int}/log/{name}", self._worker),
                Route("/{repository}/{run}/{worker:int}/text/{name}", self._range),
                Route("/{repository}/{run}/{worker:int}/raw/{name}", self._raw),
                Route("/{repository}/{run}/{worker:int}/artifact/{number:int}", self._artifact),
                Route("/{repository}/{run}/{worker:int}/{tab}", self._worker),
                Route("/{repository}/{run}/{tab}", self._run),
            ],
            exception_handlers={HTTPException: self._error_page},
        )
        locked = partial(template_text, "sign_in.html")
        guarded = AccessControl(app, sessions=self._sessions, port=port, locked=locked)
        self._cookie = guarded.cookie
        return guarded

    def _action_routes(self) -> list[Route]:
        if self._actions is None:
            # protection: read-only-view-has-no-actions
            return []
        run, both = "/{repository}/{run}", ["GET", "POST"]
        return [
            Route("/{repository}/new", self._new, methods=both),
            Route("/{repository}/command/{number:int}", self._job),
            *(
                Route(f"{run}/{name}", partial(self._command, make=make), methods=both)
                for name, make in RUN_FORMS.items()
            ),
            Route(f"{run}/merge", partial(self._merge, make=merge_page), methods=both),
            Route(f"{run}/pick", partial(self._merge, make=pick_page), methods=both),
            Route(f"{run}/{{worker:int}}/comment", self._comment, methods=["POST"]),
            Route(f"{run}/stop", self._stop, methods=both),
            Route(f"{run}/{{worker:int}}/stop", self._stop, methods=both),
            *(
                Route(f"{run}/{{worker:int}}/{name}", partial(self._send, make=make), methods=both)
                for name, make in WORKER_FORMS.items()
            ),
        ]

    def _site_of(self, request: Request) -> Site:
        once = self._actions.commands.ticket() if self._actions else ""
        return self._site.for_forms(request.scope.get("session_token", ""), once)

    async def _open(self, request: Request) -> Response:
        """Open a session with the key of the one-time link."""
        session = self._sessions.open((await _body(request)).decode("utf-8", "replace"))
        # protection: session-is-required
        if session is None:
            raise HTTPException(403, "the link was used already, or is not the latest")
        answer = Response(status_code=204)
        # Browsers keep the cookie when they are closed; it opens nothing after the server's end,
        # unless `--port` stores the sessions.
        # protection: cookie-is-hidden-from-scripts
        # protection: cookie-is-not-sent-from-other-sites
        answer.set_cookie(
            self._cookie, session, path="/", httponly=True, samesite="strict", max_age=_SIGNED_IN
        )
        return answer

    async def _runs(self, request: Request) -> Response:
        catalog, site, query = self._catalog, self._site_of(request), request.query_params
        if await run_in_threadpool(_is_same, request, lambda: runs_version(catalog, query)):
            return Response(status_code=304)
        return _html(await run_in_threadpool(runs_page, catalog, site, query))

    async def _run(self, request: Request) -> Response:
        tab = request.path_params.get("tab", "")
        if tab not in RUN_PAGES:
            raise HTTPException(404)
        if await run_in_threadpool(_is_same, request, lambda: self._version(request, tab)):
            return Response(status_code=304)
        return await self._page(lambda: RUN_PAGES[tab](self._view(request)))

    async def _worker(self, request: Request) -> Response:
        name = request.path_params.get("name", "")
        tab = "" if name else request.path_params.get("tab", "")
        if tab not in WORKER_PAGES:
            raise HTTPException(404)
        if await run_in_threadpool(_is_same, request, lambda: self._version(request, tab)):
            return Response(status_code=304)

        def page() -> Page | None:
            view, worker = self._view_of_worker(request)
            if tab == "":
                refreshed = "x-version" in request.headers
                return log_page(view, worker, name=name, is_refresh=refreshed)
            return WORKER_PAGES[tab](view, worker)

        return await self._page(page)

    async def _page(self, make: Callable[[], Page | None]) -> Response:
        if (page := await run_in_threadpool(make)) is None:
            raise HTTPException(404)
        return _html(page)

    def _range(self, request: Request) -> Response:
        """Return a range of a worker's log as JSON."""
        view, worker = self._view_of_worker(request)
        before, after = _number(request, "before"), _number(request, "after")
        runs = worker.result is None and view.snapshot.is_live
        log = self._log(request, view, worker)
        if log is None and not runs:
            raise HTTPException(404)
        if log is None:
            # Between two turns or attempts, a running worker has no output for a moment.
            piece = Piece((), 0, 0, 0)
        elif before is not None:
            piece = read_before(log, before)
        elif runs:
            piece = read_after(log, after or 0)
        else:
            piece = read_rest(log, after or 0)
        found = {"ended": not runs}
        return Response(json.dumps(vars(piece) | found), media_type="application/json")

    async def _raw(self, request: Request) -> Response:
        """Return a worker's unchanged log as a download, which browsers do not interpret."""
        view, worker = await run_in_threadpool(self._view_of_worker, request)
        log = await run_in_threadpool(self._log, request, view, worker)
        if log is None:
            raise HTTPException(404)
        name = f"{view.snapshot.run_id}-worker-{worker.spec.worker_id}-{log.name}.log"
        return _download(raw(log), name)

    async def _artifact(self, request: Request) -> Response:
        """Return an artifact of a worker as a download, which browsers do not interpret."""
        view, worker = await run_in_threadpool(self._view_of_worker, request)
        directory, number = view.run.directory, request.path_params["number"]
        for found in await run_in_threadpool(artifacts_of, directory, worker):
            if found.number == number:
                return _download(content(directory, worker, found), found.name)
        raise HTTPException(404)

    def _log(self, request: Request, view: View, worker: WorkerView) -> Log | None:
        name = request.path_params["name"]
        logs = logs_of(view.run.directory, worker.spec.worker_id)
        return next((log for log in logs if log.name == name), None)

    async def _stop(self, request: Request) -> Response:
        """Return a page that asks the user to confirm a stop, or perform a confirmed stop."""
        actions = self._actions
        if actions is None:
            raise HTTPException(405)
        fields = await self._fields(request) if request.method == "POST" else None
        number = request.path_params.get("worker")

        def work() -> Page | str:
            view = self._view(request) if number is None else self._view_of_worker(request)[0]
            if fields is None:
                return actions.question(view, number)
            return actions.stop(view, number, kill=[*fields.get("how", ())][:1] == ["kill"])

        return await self._act(request, work)

    async def _act(self, request: Request, work: Callable[[], Page | str | None]) -> Response:
        """Return the page or the address to which an action leads."""

        def act() -> Page | str | None:
            try:
                return work()
            except OrchestratorError as error:
                lines = [one_line(text, limit=500) for text in (error.message, error.hint) if text]
                site = self._site_of(request)
                return message_page(site, "The action failed", *lines, status=409)

        if (done := await run_in_threadpool(act)) is None:
            raise HTTPException(404)
        return _html(done) if isinstance(done, Page) else RedirectResponse(done, 303)

    async def _merge(self, request: Request, make: Callable[..., Page | None]) -> Response:
        """Return a page of a merge, or perform a confirmed merge."""
        fields = await self._fields(request) if request.method == "POST" else None
        named = _number(request, "worker")
        return await self._page(lambda: make(self._view(request), fields, named=named))

    async def _new(self, request: Request) -> Response:
        """Return the form of a new run, or start the run."""
        repository = self._catalog.repositories.get(request.path_params["repository"])
        if repository is None:
            raise HTTPException(404)
        name = request.path_params["repository"]

        def ask() -> Asked:
            again = request.query_params.get("from")
            run = self._catalog.run(name, again) if again else None
            plan = self._catalog.plan(run.directory) if run else None
            if again and not can_run_again(plan):
                raise HTTPException(404)
            form, notes = new_run_form(repository, plan)
            return Asked(form, repository, place_of_new(name), notes=tuple(notes))

        return await self._answer(request, ask)

    async def _command(self, request: Request, make: MakeForm) -> Response:
        """Return a form of a run that starts a command, or start the command."""

        def ask() -> Asked | None:
            view = self._view(request)
            form = make(view)
            if form is None:
                return None
            return Asked(form, view.repository, place_of(view), run=view.run.directory)

        return await self._answer(request, ask)

    async def _send(self, request: Request, make: MakeWorkerForm) -> Response:
        """Return a form of a worker that starts a command, or start the command."""

        def ask() -> Asked | None:
            view, worker = self._view_of_worker(request)
            form = make(view, worker)
            if form is None:
                return None
            place = place_of(view, worker.worker_id)
            return Asked(form, view.repository, place, run=view.run.directory)

        return await self._answer(request, ask)

    async def _comment(self, request: Request) -> Response:
        """Add or remove a comment on a line of a worker's diff, or send the comments."""
        fields, actions = await self._fields(request), self._actions
        if actions is None:
            raise HTTPException(405)

        def work() -> str:
            return change_comments(actions.commands, *self._view_of_worker(request), fields)

        return await self._act(request, work)

    async def _answer(self, request: Request, ask: Callable[[], Asked | None]) -> Response:
        actions = self._actions
        if actions is None:
            raise HTTPException(405)
        fields = await self._fields(request) if request.method == "POST" else None
        site = self._site_of(request)

        def work() -> Page | str | None:
            asked = ask()
            return None if asked is None else answer(actions.commands, site, asked, fields)

        return await self._act(request, work)

    async def _job(self, request: Request) -> Response:
        """Return the page about a command that a browser started."""
        repository, number = request.path_params["repository"], request.path_params["number"]
        job = self._actions.commands.job(number) if self._actions else None
        if job is None or repository not in self._catalog.repositories:
            raise HTTPException(404)
        return _html(await run_in_threadpool(job_page, self._site_of(request), repository, job))

    async def _fields(self, request: Request) -> Mapping[str, list[str]]:
        """Return the fields of a sent form; refuse a form not made for the same session."""
        text = (await _body(request)).decode("utf-8", "replace")
        fields = parse_qs(text, max_num_fields=2000)
        token = self._site_of(request).token
        # protection: form-without-sessions-token-refused
        if not token or fields.get("token") != [token]:
            raise HTTPException(403, "the form is not from this session: load the page again")
        return fields

    def _view(self, request: Request) -> View:
        names = request.path_params
        run = self._catalog.run(names["repository"], names["run"])
        if run is None:
            raise HTTPException(404)
        snapshot, site = self._catalog.snapshot(run), self._site_of(request)
        return View(self._catalog, run, snapshot, site, request.query_params)

    def _view_of_worker(self, request: Request) -> tuple[View, WorkerView]:
        view = self._view(request)
        worker = view.snapshot.by_number.get(request.path_params["worker"])
        if worker is None:
            raise HTTPException(404)
        return view, worker

    def _version(self, request: Request, tab: str) -> str:
        names = request.path_params
        run = self._catalog.run(names["repository"], names["run"])
        if run is None:
            raise HTTPException(404)
        version = self._catalog.version(run)
        return version + (tick(version) if tab in _MOVING else "")

    async def _error_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = error.detail if isinstance(error, HTTPException) and error.detail else ""
        heading = "Not found" if status == 404 else "The action failed"
        said = "There is no such page, run or worker." if status == 404 else f"{detail}."
        return _html(message_page(self._site_of(request), heading, said, status=status))


def _is_same(request: Request, version: Callable[[], str]) -> bool:
    """Return whether the browser already shows the current version of a page."""
    known = request.headers.get("x-version")
    return known is not None and known == version()


def _html(page: Page) -> Response:
    return HTMLResponse(page.html, page.status)


def _download(pieces: Iterator[bytes], name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, headers=headers, media_type="application/octet-stream")


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    good = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if good else None


async def _body(request: Request) -> bytes:
    data = b""
    async for piece in request.stream():
        data += piece
        # protection: large-body-refused-while-it-arrives
        if len(data) > MOST_SENT:
            raise HTTPException(413, "the request is too large")
    return data


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = {
        file.name: file for file in files("orchestrator.faces.web").joinpath("static").iterdir()
    }
    if name not in found:
        raise HTTPException(404)
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(found[name].read_bytes(), media_type=kind)
