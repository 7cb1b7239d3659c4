"""Send a request of the orchestrator itself to a server that the user named.

All such requests are sent here, so that each has a limit of time as a whole and of the answer's
size, goes through the user's proxies (`HTTPS_PROXY`, `NO_PROXY`), and follows no redirect that
would lose the message or take it, with its headers, to another host.
"""

import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit

_LARGEST = 64 * 1024
"""Maximum size in bytes of an answer that is read."""
_MOST_REDIRECTS = 3
_KEEPS_MESSAGE = frozenset({307, 308})
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP status codes of temporary failures, after which a request may be repeated."""


class RequestFailedError(OSError):
    """A request failed. The text names neither the address nor anything that the server sent."""

    def __init__(
        self, message: str, *, is_temporary: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary
        """Whether the request may succeed later."""
        self.retry_after = retry_after
        """Number of seconds after which the server allows another attempt."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to `post`, as errors."""

    def _refuse(self, *_: object) -> None:
        """Handle nothing."""

    http_error_301 = http_error_302 = http_error_303 = _refuse  # type: ignore[assignment]
    http_error_307 = http_error_308 = _refuse  # type: ignore[assignment]


def post(address: str, body: bytes, headers: Mapping[str, str], *, timeout: float) -> bytes:
    """Post a message, and return the beginning of the answer.

    Args:
        address: An `http` or `https` URL.
        body: The message.
        headers: The headers of the request.
        timeout: Maximum number of seconds for everything, with redirects.

    Raises:
        RequestFailedError: The server did not accept the message in time.
    """
    answers: list[bytes | RequestFailedError] = []

    def send() -> None:
        try:
            answers.append(_post(address, body, headers, timeout))
        except RequestFailedError as error:
            answers.append(error)

    # The timeout of a socket applies to each read: a server that sends one byte each second would
    # never exceed it. Looking up the name of a host has no timeout at all. The process does not
    # wait for a daemon thread when it ends.
    thread = threading.Thread(target=send, name="outgoing", daemon=True)
    thread.start()
    # protection: no-server-delays-us-for-longer-than-allowed
    thread.join(timeout)
    answer = answers[0] if answers else RequestFailedError(f"no answer within {timeout:g} s")
    if isinstance(answer, RequestFailedError):
        raise answer
    return answer


def _post(address: str, body: bytes, headers: Mapping[str, str], timeout: float) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    for _ in range(_MOST_REDIRECTS + 1):
        try:
            request = urllib.request.Request(  # noqa: S310 - checked below
                address, body, dict(headers), method="POST"
            )
            if request.type not in ("http", "https"):
                raise ValueError(request.type)
            with opener.open(request, timeout=timeout) as answer:
                found: bytes = answer.read(_LARGEST)
                return found
        except HTTPError as error:
            with error:
                address = _next_address(address, error)
        except (OSError, HTTPException, ValueError) as error:
            raise _failure(error, timeout) from error
    raise RequestFailedError("the server redirects too often", is_temporary=False)


def _next_address(address: str, error: HTTPError) -> str:
    """Return the address that a redirect leads to.

    Raises:
        RequestFailedError: The answer is another one, or a redirect that is not followed.
    """
    if not 300 <= error.code < 400:
        raise RequestFailedError(
            f"the server answered with the status {error.code}",
            is_temporary=error.code in _TEMPORARY,
            retry_after=_retry_after(error.headers.get("Retry-After")),
        )
    target, is_same = "", False
    try:
        target = urljoin(address, error.headers.get("Location", ""))
        is_same = _origin(address) == _origin(target)
        if error.code in _KEEPS_MESSAGE and urlsplit(address).scheme == "http":
            # The same host by TLS, at the usual ports.
            is_same = is_same or _origin(f"https{address[4:]}") == _origin(target)
    except ValueError:
        is_same = False
    if error.code not in _KEEPS_MESSAGE:
        why = "with which the message would be lost"
    elif not is_same:
        why = "which leads to another host"
    else:
        return target
    # protection: no-message-follows-redirect-to-another-host
    raise RequestFailedError(
        f"the server answered with a redirect ({error.code}), {why}: set the address that it "
        "leads to",
        is_temporary=False,
    )


def _origin(address: str) -> tuple[str, str, int]:
    parts = urlsplit(address)
    usual = {"http": 80, "https": 443}
    return parts.scheme, (parts.hostname or "").lower(), parts.port or usual.get(parts.scheme, 0)


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a header `Retry-After`: a number, or a date; None if it has neither."""
    given = (text or "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        return max(parsedate_to_datetime(given).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _failure(error: Exception, timeout: float) -> RequestFailedError:
    """Return an error whose text is one line, of an error of the connection."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = f"the server's certificate is not accepted: {cause.verify_message}"
        return RequestFailedError(said, is_temporary=False)
    if isinstance(cause, ssl.SSLError):
        return RequestFailedError(f"the server does not speak TLS as expected ({cause.reason})")
    if isinstance(cause, TimeoutError):
        return RequestFailedError(f"no answer within {timeout:g} s")
    if isinstance(cause, OSError) and cause.strerror:
        return RequestFailedError(f"the server cannot be reached: {cause.strerror}")
    if isinstance(error, ValueError):
        return RequestFailedError("the address is not valid", is_temporary=False)
    is_invalid = type(error).__name__ == "InvalidURL"
    said = "the address is not valid" if is_invalid else f"the request failed: {_name(cause)}"
    return RequestFailedError(said, is_temporary=not is_invalid)


def _name(cause: object) -> str:
    return type(cause).__name__ if isinstance(cause, Exception) else "no connection"
