"""Pass a worker's call on to an API or a git host, and the answer back while it arrives."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import ClientResponse, web
from multidict import CIMultiDict

from orchestrator.base.text.redact import Redactor
from orchestrator.network.broker.answers import Reader, WholeAnswer, reader_of
from orchestrator.network.broker.bodies import Request
from orchestrator.network.broker.calls import Call, answer_headers

REDIRECTS = range(300, 400)
ERRORS = 400
"""Lowest status of an answer for which a provider bills nothing."""


@dataclass(frozen=True, kw_only=True)
class Way:
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

    @property
    def place(self) -> str:
        """Return the host that the request is sent to, for messages."""
        return f"the {'git host' if self.call is None else 'API'} at {urlsplit(self.url).netloc}"

    def follows(self, answer: ClientResponse) -> bool:
        """Return whether an answer redirects to the URL of the same repository with `.git`."""
        if answer.status not in REDIRECTS or self.renamed is None:
            return False
        # protection: of-redirects-only-one-to-same-repository-is-followed
        return answer.headers.get("Location", "").partition("?")[0] == self.renamed


class Passing:
    """A call that is being forwarded to an API, and the API's answer."""

    def __init__(
        self,
        incoming: web.Request,
        way: Way,
        request: Request | None = None,
        settle: Callable[..., None] | None = None,
    ) -> None:
        self.incoming = incoming
        self.way = way
        self.reader: Reader | None = None
        """Reader of the usage in a billed answer; None before the answer or if it is not billed."""
        self.out: web.StreamResponse | None = None
        """The answer to the worker; None before its beginning."""
        self.costs_nothing = False
        """Whether it is certain that the provider bills nothing."""
        self._request = request
        self._settle = settle

    async def pass_back(self, answer: ClientResponse, redactor: Redactor) -> web.StreamResponse:
        """Forward an answer to the worker while it arrives, with API keys removed from it."""
        self.costs_nothing = answer.status >= ERRORS
        if self._request is not None and (flavor := self._request.call.flavor) is not None:
            self.reader = reader_of(
                answer.content_type,
                flavor,
                answers=self._request.answers,
                without_usage=self._request.adds_usage,
            )
        passed_headers = answer_headers(answer.headers)
        # protection: keys-are-redacted-from-headers-of-answers
        headers = CIMultiDict((name, redactor.text(value)) for name, value in passed_headers)
        self.out = out = web.StreamResponse(status=answer.status, headers=headers)
        await self._send(out.prepare(self.incoming))
        clean, reader = redactor.stream(), self.reader
        if reader is None or self._settle is None:
            async for data in answer.content.iter_any():
                # protection: tokens-of-git-hosts-are-redacted-from-answers
                await self._write(clean.feed(data))
            await self._write(clean.flush())
        else:
            async for data in answer.content.iter_any():
                passed = reader.feed(data)
                # Recorded before the worker gets the end of the answer and can make another call.
                if reader.has_ended:
                    self._settle(reader, costs_nothing=self.costs_nothing)
                # protection: keys-are-redacted-from-answers
                await self._write(clean.feed(passed))
            rest = reader.close()
            self._settle(reader, costs_nothing=self.costs_nothing)
            await self._write(clean.feed(rest) + clean.flush())
        await out.write_eof()
        return out

    async def _write(self, data: bytes) -> None:
        if data and self.out is not None:
            await self._send(self.out.write(data))

    async def _send(self, sending: Awaitable[object]) -> None:
        try:
            await sending
        except ConnectionError:
            # The rest of a complete answer contains the usage; a stream would cause more cost.
            if not isinstance(self.reader, WholeAnswer):
                raise
