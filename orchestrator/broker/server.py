"""The credential broker: forwards workers' calls to model APIs and adds the API keys.

Arguments: address and port to listen on, the directory with the grants, and the directory for the
ledgers. The broker never follows a redirect, and removes keys from everything that it sends to
workers.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)
from multidict import CIMultiDict

from orchestrator.broker.accounts import Account, Accounts, RefusedError
from orchestrator.broker.answers import Reader, WholeAnswer, reader_of
from orchestrator.broker.bodies import BadRequestError, Request
from orchestrator.broker.calls import (
    Call,
    answer_headers,
    find_call,
    presented_token,
    request_headers,
    request_query,
)
from orchestrator.broker.prices import measured
from orchestrator.broker.repositories import READS, GitCall, find_git_call, git_headers
from orchestrator.text.redact import RedactedStream, Redactor

READY = "ready"
"""Name of the file that the broker creates once it accepts connections."""
MARK = "x-gateway"
"""Name of the header by which workers recognise answers of the broker itself, and not of an API."""
_LARGEST_BODY = 32 * 1024**2
_MOST_IN_MEMORY = 128 * 1024**2
"""Maximum size in bytes of all request bodies that are in memory at the same time."""
_REDIRECT = range(300, 400)
_PLAIN = "identity"
_ERRORS = 400
_PART = 256 * 1024
"""Maximum number of bytes of an API's answer that are read at once."""
_SILENCE = 3600.0
"""Maximum number of seconds between two parts of an API's answer."""


class Broker:
    """Handles the calls of all workers to model APIs and git hosts."""

    def __init__(self, accounts: Accounts, session: ClientSession) -> None:
        self._accounts = accounts
        self._session = session
        self._in_memory = 0

    async def handle(self, incoming: web.Request) -> web.StreamResponse:
        """Handle one call of a worker: forward it to the API, or refuse it."""
        raw_path, _, _ = incoming.raw_path.partition("?")
        of_git = find_git_call(incoming.method, raw_path, incoming.query)
        call = None if of_git else find_call(incoming.method, raw_path)
        try:
            token = presented_token(incoming.headers, incoming.query)
            account = self._accounts.of(incoming.remote or "", token)
            if of_git is not None:
                way = _way_of_git(incoming, of_git, account)
            else:
                way = _way_of(incoming, call, account)
            account.begin(billed=way.call is not None and way.call.flavor is not None)
            try:
                return await self._carry_out(incoming, way, account)
            finally:
                account.at_once -= 1
        except RefusedError as refused:
            if of_git is not None:
                return _refusal_of_git(refused, of_git)
            return _refusal(refused, gemini=call is not None and call.flavor == "gemini")

    async def _carry_out(
        self, incoming: web.Request, way: "_Way", account: Account
    ) -> web.StreamResponse:
        size, call = incoming.content_length, way.call
        reserved = _LARGEST_BODY if size is None else size
        if size is not None and size > _LARGEST_BODY:
            raise RefusedError(413, "request_too_large", "the request is larger than 32 MiB")
        if self._in_memory + reserved > _MOST_IN_MEMORY:
            raise RefusedError(
                429, "gateway_rate_limit", "the broker's memory is full", retry_after=1
            )
        self._in_memory += reserved
        try:
            raw = await incoming.read()
            if call is None or call.flavor is None:
                return await self._pass_on(_Passing(incoming, way), account, raw)
            try:
                request = Request.read(call, raw)
            except BadRequestError as error:
                raise RefusedError(400, "invalid_request", str(error)) from error
            return await self._billed(incoming, account, way, request, len(raw))
        except web.HTTPRequestEntityTooLarge as error:
            raise RefusedError(
                413, "request_too_large", "the request is larger than 32 MiB"
            ) from error
        finally:
            self._in_memory -= reserved

    async def _billed(
        self,
        incoming: web.Request,
        account: Account,
        way: "_Way",
        request: Request,
        size: int,
    ) -> web.StreamResponse:
        ledger, flavor = account.ledger, request.call.flavor
        number = account.set_aside(request, size)
        request.ask_for_usage()

        def settle(answer: Reader | None, *, costs_nothing: bool) -> None:
            if number not in ledger.spent.pending:
                return
            found = None
            if answer is not None and flavor is not None:
                found = measured(answer.found, request.model, flavor)
            if found is not None:
                ledger.end(number, found.cost, found.tokens)
            elif costs_nothing:
                ledger.end(number, 0.0, 0)
            else:
                ledger.end_unknown(number)

        passing = _Passing(incoming, way, request, settle)
        try:
            return await self._pass_on(passing, account, request.encoded())
        except RefusedError as refused:
            settle(None, costs_nothing=refused.costs_nothing)
            raise
        finally:
            settle(passing.reader, costs_nothing=False)

    async def _pass_on(
        self, passing: "_Passing", account: Account, body: bytes
    ) -> web.StreamResponse:
        incoming, way = passing.incoming, passing.way
        try:
            async with self._session.request(
                incoming.method,
                way.url,
                params=way.query,
                headers=way.headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if way.follows(answer) and way.renamed is not None:
                    passing.way = replace(way, url=way.renamed, renamed=None)
                    return await self._pass_on(passing, account, body)
                if answer.status in _REDIRECT:
                    raise RefusedError(
                        502,
                        "upstream_redirect",
                        "the API answered with a redirect, which the broker does not follow",
                    )
                if answer.headers.get("Content-Encoding", _PLAIN).lower() != _PLAIN:
                    # The broker asked for plain text: in anything else it would not find the key.
                    raise RefusedError(
                        502,
                        "upstream_encoding",
                        "the API compressed its answer, which the broker cannot check",
                    )
                return await passing.pass_back(answer, account.redactor)
        except (ClientError, TimeoutError, OSError) as error:
            if passing.out is not None:
                # The worker already has the beginning of the answer: the connection is closed.
                if incoming.transport is not None:
                    incoming.transport.abort()
                return passing.out
            # The text of the error could contain the URL.
            raise RefusedError(
                502,
                "upstream_unreachable",
                f"the API cannot be reached ({type(error).__name__})",
                costs_nothing=isinstance(error, ClientConnectorError),
            ) from error


@dataclass(frozen=True, kw_only=True)
class _Way:
    """The destination of a request, with the parameters and headers to send."""

    url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    call: Call | None = None
    """The call to a model's API; None for a request to a git host."""
    renamed: str | None = None
    """URL with `.git` after the repository's name, to which some git hosts redirect; None if `url`
    has `.git` already, or for a call to a model's API.
    """

    def follows(self, answer: ClientResponse) -> bool:
        """Return whether an answer redirects to the URL of the same repository with `.git`."""
        if answer.status not in _REDIRECT or self.renamed is None:
            return False
        return answer.headers.get("Location", "").partition("?")[0] == self.renamed


def _way_of(incoming: web.Request, call: Call | None, account: Account) -> _Way:
    upstream = account.grant.upstreams.get(call.upstream) if call else None
    if call is None or upstream is None:
        account.ledger.refuse("call")
        raise RefusedError(403, "call_not_allowed", "the broker does not allow this API call")
    return _Way(
        url=f"{upstream.url}/{call.path}",
        query=request_query(incoming.query),
        headers=request_headers(incoming.headers, upstream.key),
        call=call,
    )


def _way_of_git(incoming: web.Request, asked: GitCall, account: Account) -> _Way:
    repository = asked.find(account.grant.repositories)
    if repository is None or asked.does == "writes":
        account.ledger.refuse("call")
    if repository is None:
        raise RefusedError(
            403, "repository_not_allowed", f"`git_read` does not list {asked.place:.200}"
        )
    if asked.does == "writes":
        raise RefusedError(403, "push_not_allowed", "workers may read this repository, not push")
    if asked.does == "reads large files":
        raise RefusedError(
            403,
            "lfs_not_allowed",
            "the broker cannot read git-lfs content: set GIT_LFS_SKIP_SMUDGE=1",
        )
    return _Way(
        url=asked.url(repository),
        renamed=None if asked.place.endswith(".git") else asked.url(repository, suffix=".git"),
        query={"service": READS} if incoming.method == "GET" else {},
        headers=git_headers(incoming.headers, repository.key),
    )


class _Passing:
    """A call that is being forwarded to an API, and the API's answer."""

    def __init__(
        self,
        incoming: web.Request,
        way: _Way,
        request: Request | None = None,
        settle: Callable[..., None] | None = None,
    ) -> None:
        self.incoming = incoming
        self.way = way
        self.reader: Reader | None = None
        """Reader of the usage in a billed answer; None before the answer or if it is not billed."""
        self.out: web.StreamResponse | None = None
        """The answer to the worker; None before its beginning."""
        self._settle = settle
        self._adds_usage = request is not None and request.adds_usage

    async def pass_back(self, answer: ClientResponse, redactor: Redactor) -> web.StreamResponse:
        """Forward an answer to the worker while it arrives, with API keys removed from it."""
        passed_headers = answer_headers(answer.headers)
        headers = CIMultiDict((name, redactor.text(value)) for name, value in passed_headers)
        self.out = out = web.StreamResponse(status=answer.status, headers=headers)
        await out.prepare(self.incoming)
        clean = redactor.stream()
        if self._settle is None:
            async for data in answer.content.iter_any():
                await self._write(clean.feed(data))
            await self._write(clean.flush())
        else:
            self.reader = reader_of(answer.content_type, without_usage=self._adds_usage)
            await self._pass_billed(answer, self.reader, clean, self._settle)
        await out.write_eof()
        return out

    async def _pass_billed(
        self,
        answer: ClientResponse,
        reader: Reader,
        clean: RedactedStream,
        settle: Callable[..., None],
    ) -> None:
        """Send the body of an answer to the worker, and record the call's tokens and cost."""
        async for data in answer.content.iter_any():
            await self._write(clean.feed(reader.feed(data)))
        # Recorded before the worker gets the end of the answer and can make another call.
        settle(reader, costs_nothing=answer.status >= _ERRORS)
        await self._write(clean.feed(reader.close()) + clean.flush())

    async def _write(self, data: bytes) -> None:
        try:
            if data and self.out is not None:
                await self.out.write(data)
        except ConnectionError:
            # The rest of a complete answer contains the usage; a stream would cause more cost.
            if not isinstance(self.reader, WholeAnswer):
                raise


def _refusal(refused: RefusedError, *, gemini: bool) -> web.Response:
    error: dict[str, object] = {
        "type": refused.code,
        "code": refused.status if gemini else refused.code,
        "message": f"gateway: {refused}",
        "status": refused.code,
    }
    headers = {MARK: refused.code}
    if refused.retry_after is not None:
        headers["Retry-After"] = str(refused.retry_after)
    else:
        headers["x-should-retry"] = "false"
    return web.json_response(
        {"type": "error", "error": error}, status=refused.status, headers=headers
    )


def _refusal_of_git(refused: RefusedError, asked: GitCall) -> web.Response:
    text, headers = f"gateway: {refused}", {MARK: refused.code}
    if asked.does == "reads large files":
        # The form in which git-lfs shows an answer to its user.
        return web.json_response({"message": text}, status=refused.status, headers=headers)
    # Git shows plain text.
    return web.Response(status=refused.status, text=f"{text}\n", headers=headers)


async def serve(address: str, port: int, grants: Path, state: Path) -> None:
    """Accept and handle calls until the process is ended."""
    connector = TCPConnector(limit=0, ssl=ssl.create_default_context())
    timeout = ClientTimeout(total=None, sock_connect=15, sock_read=_SILENCE)
    async with ClientSession(
        connector=connector,
        timeout=timeout,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        # Large answers pass in large parts, which cost less each.
        read_bufsize=_PART,
    ) as session:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", Broker(Accounts(grants, state), session).handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, address, port, backlog=1024).start()
        (state / READY).write_text(str(os.getpid()))
        await asyncio.Event().wait()


def main(address: str, port: str, grants: str, state: str) -> None:
    """Start the credential broker with the arguments of the command line."""
    asyncio.run(serve(address, int(port), Path(grants), Path(state)))
