"""The credential broker: passes calls of workers on to models' APIs, with the key of each.

Arguments: address and port to listen on, the directory with the grants, and the directory for the
ledgers. The broker never follows a redirect, and takes keys out of everything that workers get.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
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
from orchestrator.broker.answers import EventStream, Reader, reader_of
from orchestrator.broker.bodies import BadRequestError, Request
from orchestrator.broker.calls import (
    Call,
    answer_headers,
    find_call,
    presented_token,
    request_headers,
    request_query,
)
from orchestrator.broker.grant import Upstream
from orchestrator.broker.prices import measured
from orchestrator.text.redact import Redactor

READY = "ready"
"""File that the broker creates when it listens."""
MARK = "x-gateway"
"""Header of the answers that come from the broker, and not from an API."""
_LARGEST_BODY = 32 * 1024**2
_MOST_IN_MEMORY = 128 * 1024**2
"""Maximum size in bytes of all bodies of requests together."""
_REDIRECT = range(300, 400)
_PLAIN = "identity"
_ERRORS = 400
_PART = 256 * 1024
"""Bytes of an answer that are read at once."""
_SILENCE = 3600.0
"""Maximum number of seconds between two parts of an API's answer."""


class Broker:
    """Handles the calls."""

    def __init__(self, accounts: Accounts, session: ClientSession) -> None:
        self._accounts = accounts
        self._session = session
        self._in_memory = 0

    async def handle(self, incoming: web.Request) -> web.StreamResponse:
        """Answer one call."""
        raw_path, _, _ = incoming.raw_path.partition("?")
        call = find_call(incoming.method, raw_path)
        try:
            token = presented_token(incoming.headers, incoming.query)
            account = self._accounts.of(incoming.remote or "", token)
            upstream = account.grant.upstreams.get(call.upstream) if call else None
            if call is None or upstream is None:
                account.ledger.refuse("call")
                raise RefusedError(403, "call_not_allowed", "the broker does not pass this call on")
            account.begin(call)
            try:
                return await self._carry_out(incoming, call, account, upstream)
            finally:
                account.at_once -= 1
        except RefusedError as refused:
            return _refusal(refused, gemini=call is not None and call.flavor == "gemini")

    async def _carry_out(
        self, incoming: web.Request, call: Call, account: Account, upstream: Upstream
    ) -> web.StreamResponse:
        size = incoming.content_length
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
            if call.flavor is None:
                return await self._pass_on(_Passing(incoming, call), account, upstream, raw)
            try:
                request = Request.read(call, raw)
            except BadRequestError as error:
                raise RefusedError(400, "invalid_request", str(error)) from error
            return await self._billed(incoming, account, upstream, request, len(raw))
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
        upstream: Upstream,
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

        passing = _Passing(incoming, request.call, request, settle)
        try:
            return await self._pass_on(passing, account, upstream, request.encoded())
        except RefusedError as refused:
            settle(None, costs_nothing=refused.costs_nothing)
            raise
        finally:
            settle(passing.reader, costs_nothing=False)

    async def _pass_on(
        self, passing: "_Passing", account: Account, upstream: Upstream, body: bytes
    ) -> web.StreamResponse:
        incoming = passing.incoming
        try:
            async with self._session.request(
                incoming.method,
                f"{upstream.url}/{passing.call.path}",
                params=request_query(incoming.query),
                headers=request_headers(incoming.headers, upstream.key),
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if answer.status in _REDIRECT:
                    raise RefusedError(502, "upstream_redirect", "the API answered with a redirect")
                if answer.headers.get("Content-Encoding", _PLAIN).lower() != _PLAIN:
                    # The broker asked for plain text: in anything else it would not find the key.
                    raise RefusedError(502, "upstream_encoding", "the API compressed its answer")
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


class _Passing:
    """A call that is passed on, and its answer."""

    def __init__(
        self,
        incoming: web.Request,
        call: Call,
        request: Request | None = None,
        settle: Callable[..., None] | None = None,
    ) -> None:
        self.incoming = incoming
        self.call = call
        self.reader: Reader | None = None
        """Reads the usage of the answer; None before the answer."""
        self.out: web.StreamResponse | None = None
        """The answer to the worker; None before its beginning."""
        self._settle = settle
        self._adds_usage = request is not None and request.adds_usage

    async def pass_back(self, answer: ClientResponse, redactor: Redactor) -> web.StreamResponse:
        """Send an answer to the worker while it arrives, without keys."""
        passed_headers = answer_headers(answer.headers)
        headers = CIMultiDict((name, redactor.text(value)) for name, value in passed_headers)
        self.out = out = web.StreamResponse(status=answer.status, headers=headers)
        await out.prepare(self.incoming)
        self.reader = reader = reader_of(answer.content_type, without_usage=self._adds_usage)
        clean = redactor.stream()
        async for data in answer.content.iter_any():
            passed = clean.feed(reader.feed(data))
            if passed:
                await self._write(out, passed)
        if self._settle is not None:
            # Recorded before the worker gets the end of the answer and can make another call.
            self._settle(reader, costs_nothing=answer.status >= _ERRORS)
        await self._write(out, clean.feed(reader.close()) + clean.flush())
        await out.write_eof()
        return out

    async def _write(self, out: web.StreamResponse, data: bytes) -> None:
        try:
            await out.write(data)
        except ConnectionError:
            # The rest of a complete answer contains the usage; a stream would cause more cost.
            if isinstance(self.reader, EventStream):
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


async def serve(address: str, port: int, grants: Path, state: Path) -> None:
    """Serve until the process ends."""
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
    """Start the broker."""
    asyncio.run(serve(address, int(port), Path(grants), Path(state)))
