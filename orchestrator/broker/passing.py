"""Pass a worker's call on to an API or a git host, and the answer back while it arrives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import ClientResponse, web
from multidict import CIMultiDict

from orchestrator.broker.answers import Reader, WholeAnswer, reader_of
from orchestrator.broker.bodies import Request
from orchestrator.broker.calls import Call, answer_headers
from orchestrator.text.redact import Redactor

REDIRECTS = range(300, 400)
_ERRORS = 400


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
        self._settle = settle
        self._adds_usage = request is not None and request.adds_usage

    async def pass_back(self, answer: ClientResponse, redactor: Redactor) -> web.StreamResponse:
        """Forward an answer to the worker while it arrives, with API keys removed from it."""
        passed_headers = answer_headers(answer.headers)
        # protection: keys-are-redacted-from-headers-of-answers
        headers = CIMultiDict((name, redactor.text(value)) for name, value in passed_headers)
        self.out = out = web.StreamResponse(status=answer.status, headers=headers)
        await out.prepare(self.incoming)
        clean = redactor.stream()
        if self._settle is None:
            async for data in answer.content.iter_any():
                # protection: tokens-of-git-hosts-are-redacted-from-answers
                await self._write(clean.feed(data))
            await self._write(clean.flush())
        else:
            reader = reader_of(answer.content_type, without_usage=self._adds_usage)
            self.reader = reader
            async for data in answer.content.iter_any():
                # protection: keys-are-redacted-from-answers
                await self._write(clean.feed(reader.feed(data)))
            # Recorded before the worker gets the end of the answer and can make another call.
            self._settle(reader, costs_nothing=answer.status >= _ERRORS)
            await self._write(clean.feed(reader.close()) + clean.flush())
        await out.write_eof()
        return out

    async def _write(self, data: bytes) -> None:
        try:
            if data and self.out is not None:
                await self.out.write(data)
        except ConnectionError:
            # The rest of a complete answer contains the usage; a stream would cause more cost.
            if not isinstance(self.reader, WholeAnswer):
                raise
