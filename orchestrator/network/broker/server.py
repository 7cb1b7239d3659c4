"""The credential broker: forwards workers' calls to model APIs and adds the API keys.

The broker never follows a redirect, and removes keys from everything that it sends to workers.
"""

import asyncio
import socket
import ssl
from dataclasses import replace
from functools import partial
from pathlib import Path

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
    web,
)

from orchestrator.network.broker.accounts import Account, Accounts, RefusedError
from orchestrator.network.broker.bodies import BadRequestError, Request
from orchestrator.network.broker.calls import (
    Call,
    find_call,
    request_headers,
    request_query,
    worker_token,
)
from orchestrator.network.broker.passing import ERRORS, REDIRECTS, Passing, Way
from orchestrator.network.broker.processes import Dispatcher, next_connection
from orchestrator.network.broker.repositories import (
    READS,
    GitCall,
    decompress,
    find_git_call,
    git_headers,
)

READY = "ready"
"""Name of the file that the broker creates once it accepts connections."""
MARK = "x-gateway"
"""Name of the header by which workers recognise answers of the broker itself, and not of an API."""
_LARGEST_BODY = 32 * 1024**2
_MOST_IN_MEMORY = 64 * 1024**2
"""Maximum size in bytes of all request bodies of a worker that are in memory at the same time."""
_SLOWEST_BODY = 300.0
"""Maximum number of seconds in which a worker must send the body of a request."""
_BACKLOG = 1024
_PAUSE = 0.1
_PLAIN = "identity"
_GZIP = "gzip"
_PART = 256 * 1024
"""Maximum number of bytes of an API's answer that are read at once."""
_SILENCE = 3600.0
"""Maximum number of seconds between two parts of an API's answer."""


class Broker:
    """Handles the calls of one worker to model APIs and git hosts."""

    def __init__(self, accounts: Accounts, session: ClientSession) -> None:
        self._accounts = accounts
        self._session = session
        self._in_memory = 0
        self.calls = 0
        """Number of calls that have not ended."""
        self.is_closed = False
        """Whether new calls are refused, because the worker has ended."""

    async def handle(self, incoming: web.Request) -> web.StreamResponse:
        """Handle one call of a worker: forward it to the API, or refuse it."""
        raw_path, _, _ = incoming.raw_path.partition("?")
        of_git = find_git_call(incoming.method, raw_path, incoming.query)
        call = None if of_git else find_call(incoming.method, raw_path)
        self.calls += 1
        try:
            if self.is_closed:
                raise RefusedError(
                    503, "gateway_restarts", "the call must be repeated", retry_after=1
                )
            token = worker_token(incoming.headers, incoming.query)
            account = self._accounts.of(incoming.remote or "", token)
            encoding = incoming.headers.get("Content-Encoding", _PLAIN).lower()
            # protection: compressed-requests-are-refused
            if encoding not in ((_PLAIN, _GZIP) if of_git is not None else (_PLAIN,)):
                raise RefusedError(
                    415, "unsupported_encoding", "the broker does not accept compressed requests"
                )
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
        finally:
            self.calls -= 1

    async def _carry_out(
        self, incoming: web.Request, way: Way, account: Account
    ) -> web.StreamResponse:
        size, call = incoming.content_length, way.call
        # A body of unknown size may be the largest.
        reserved = size or (_LARGEST_BODY if incoming.body_exists else 0)
        if size is not None and size > _LARGEST_BODY:
            raise _too_large("is larger than 32 MiB")
        if self._in_memory + reserved > _MOST_IN_MEMORY:
            raise RefusedError(
                429,
                "gateway_rate_limit",
                "the worker's other requests are too large",
                retry_after=1,
            )
        self._in_memory += reserved
        try:
            async with asyncio.timeout(_SLOWEST_BODY):
                raw = await incoming.read()
            if call is None and incoming.headers.get("Content-Encoding", "").lower() == _GZIP:
                plain = decompress(raw, _LARGEST_BODY)
                if plain is None:
                    raise _too_large("is larger than 32 MiB, or not compressed as it says")
                raw = plain
            reserved, surplus = min(reserved, len(raw)), max(reserved - len(raw), 0)
            self._in_memory -= surplus
            if call is None or call.flavor is None:
                return await self._pass_on(Passing(incoming, way), account, raw)
            request = Request.read(call, raw, unique=account.grant.is_limited)
            return await self._carry_out_billed(incoming, account, way, request)
        except BadRequestError as error:
            raise RefusedError(error.status, error.code, str(error)) from error
        except TimeoutError as error:
            raise RefusedError(408, "request_too_slow", "the request arrives too slowly") from error
        except web.HTTPRequestEntityTooLarge as error:
            raise _too_large("is larger than 32 MiB") from error
        except MemoryError as error:
            raise _too_large("needs too much memory") from error
        finally:
            self._in_memory -= reserved

    async def _carry_out_billed(
        self,
        incoming: web.Request,
        account: Account,
        way: Way,
        request: Request,
    ) -> web.StreamResponse:
        number = account.set_aside(request)
        request.ask_for_usage()
        passing = Passing(incoming, way, request, partial(account.settle, number, request))
        try:
            return await self._pass_on(passing, account, request.encode())
        except RefusedError as refused:
            passing.costs_nothing = refused.costs_nothing
            raise
        finally:
            account.settle(number, request, passing.reader, costs_nothing=passing.costs_nothing)

    async def _pass_on(
        self, passing: "Passing", account: Account, body: bytes
    ) -> web.StreamResponse:
        incoming, way = passing.incoming, passing.way
        try:
            # protection: redirects-are-not-followed
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
                if answer.status in REDIRECTS:
                    raise RefusedError(
                        502,
                        "upstream_redirect",
                        f"{way.place} answered with a redirect, which the broker does not follow",
                    )
                # protection: compressed-answers-are-refused
                if answer.headers.get("Content-Encoding", _PLAIN).lower() != _PLAIN:
                    # The broker asked for plain text: in anything else it would not find the key.
                    raise RefusedError(
                        502,
                        "upstream_encoding",
                        f"{way.place} compressed its answer, which the broker cannot check",
                        costs_nothing=answer.status >= ERRORS,
                    )
                return await passing.pass_back(answer, account.redactor)
        except (ClientError, TimeoutError, OSError) as error:
            if passing.out is not None:
                # The worker already has the beginning of the answer: the connection is closed.
                if incoming.transport is not None:
                    incoming.transport.abort()
                return passing.out
            # The text of the error could contain the whole URL.
            # protection: errors-do-not-name-url-of-api
            raise RefusedError(
                502,
                "upstream_unreachable",
                f"{way.place} cannot be reached ({type(error).__name__})",
                costs_nothing=isinstance(error, ClientConnectorError | ConnectionTimeoutError),
            ) from error


def _way_of(incoming: web.Request, call: Call | None, account: Account) -> Way:
    upstream = account.grant.upstreams.get(call.upstream) if call else None
    if call is None or upstream is None:
        account.ledger.refuse("call")
        raise RefusedError(403, "call_not_allowed", "the broker does not allow this API call")
    return Way(
        url=f"{upstream.url}/{call.path}",
        query=request_query(incoming.query),
        headers=request_headers(
            incoming.headers, upstream.key, is_limited=account.grant.is_limited
        ),
        call=call,
    )


def _way_of_git(incoming: web.Request, asked: GitCall, account: Account) -> Way:
    repository = asked.find(account.grant.repositories)
    if repository is None or asked.does == "writes":
        account.ledger.refuse("call")
    # protection: only-listed-repositories-are-read
    if repository is None:
        raise RefusedError(
            403, "repository_not_allowed", f"`git_read` does not list {asked.place:.200}"
        )
    # protection: pushes-are-refused
    if asked.does == "writes":
        raise RefusedError(403, "push_not_allowed", "workers may read this repository, not push")
    # protection: content-of-git-lfs-is-neither-read-nor-written
    if asked.does == "reads large files":
        raise RefusedError(
            403,
            "lfs_not_allowed",
            "the broker cannot read git-lfs content: set GIT_LFS_SKIP_SMUDGE=1",
        )
    return Way(
        url=asked.url(repository),
        renamed=None if asked.place.endswith(".git") else asked.url(repository, suffix=".git"),
        query={"service": READS} if incoming.method == "GET" else {},
        headers=git_headers(incoming.headers, repository.key),
    )


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
    response = web.json_response(
        {"type": "error", "error": error}, status=refused.status, headers=headers
    )
    # A worker that is refused for good makes no other call soon.
    if refused.retry_after is None:
        response.force_close()
    return response


def _refusal_of_git(refused: RefusedError, asked: GitCall) -> web.Response:
    text, headers = f"gateway: {refused}", {MARK: refused.code}
    if asked.does == "reads large files":
        # The form in which git-lfs shows an answer to its user.
        return web.json_response({"message": text}, status=refused.status, headers=headers)
    # Git shows plain text.
    return web.Response(status=refused.status, text=f"{text}\n", headers=headers)


def _too_large(why: str) -> RefusedError:
    return RefusedError(413, "request_too_large", f"the request {why}")


def serve(channel: socket.socket, grants: Path, state: Path) -> None:
    """Handle one worker's calls, over the connections that a channel delivers, until its end."""
    channel.setblocking(False)
    asyncio.run(_serve(channel, Accounts(grants, state)))


async def _serve(channel: socket.socket, accounts: Accounts) -> None:
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
        broker = Broker(accounts, session)
        # protection: size-of-requests-limited
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", broker.handle)
        # What a worker compressed is not decompressed: its size would be known too late.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, auto_decompress=False)
        await runner.setup()
        server, loop = runner.server, asyncio.get_running_loop()
        if server is None:
            raise RuntimeError("the server was not set up")
        while (connection := await next_connection(loop, channel)) is not None:
            await loop.connect_accepted_socket(server, connection)
        broker.is_closed = True
        while broker.calls:
            await asyncio.sleep(_PAUSE)
        await runner.cleanup()


def main(port: str, grants: str, state: str, address: str, start: str) -> None:
    """Start the credential broker with the arguments of the command line.

    Args:
        port: Port to listen on.
        grants: The directory with the grants.
        state: The directory for the ledgers.
        address: Address to listen on.
        start: Text that the file `READY` has once this broker, and no earlier one, is ready.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, int(port)), family=family, backlog=_BACKLOG)
    (Path(state) / READY).write_text(start)
    Dispatcher(
        listener, Path(grants), lambda channel: serve(channel, Path(grants), Path(state))
    ).run()
