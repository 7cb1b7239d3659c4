"""Post a signed notification to a web address, and repeat the request after a temporary failure.

Signatures follow Standard Webhooks: the receiver computes the HMAC-SHA256 of id, time and body with
the shared key, compares it, and refuses old times. The id stays the same when a message is sent
again.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping

from tenacity import (
    RetryCallState,
    retry,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from orchestrator.base import outgoing
from orchestrator.base.errors import ConfigError
from orchestrator.base.outgoing import RequestFailedError

TIMEOUT = 10.0
"""Timeout of one request, in seconds."""
KEY_VARIABLE = "ORCHESTRATOR_NOTIFY_SECRET"
"""Variable with the key that signs messages."""
_PREFIX = "whsec_"
_SHORTEST_KEY = 16
_LONGEST = 20.0
"""Maximum number of seconds in which a message is sent again; a server that asks for a longer pause
gets it no more.
"""
_BACKOFF = wait_random_exponential(multiplier=1.0, max=5.0)


def signing_key(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """Return the key that signs messages; None if no key is set.

    Raises:
        ConfigError: The key is not in the form of Standard Webhooks, or is too short.
    """
    text = environ.get(KEY_VARIABLE)
    if not text:
        return None
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or len(key) < _SHORTEST_KEY:
        raise ConfigError(
            f"environment variable `{KEY_VARIABLE}` must be `{_PREFIX}` followed by a base64 key",
            key="variable.invalid",
            hint=f'create a key: echo "{_PREFIX}$(head -c 32 /dev/urandom | base64)"',
        )
    return key


def post(address: str, body: bytes, *, key: bytes | None = None) -> None:
    """Post a message, with at most four attempts within 20 seconds.

    Args:
        address: An `http` or `https` URL.
        body: The message as JSON.
        key: The key that signs the message.

    Raises:
        RequestFailedError: The last attempt failed.
    """
    message_id = f"msg_{secrets.token_hex(16)}"
    send_once(address, body, message_id, key)


def _may_succeed(error: BaseException) -> bool:
    """Return whether another attempt is worth it, and the server allows one in time."""
    return (
        isinstance(error, RequestFailedError)
        and error.is_temporary
        and (error.retry_after or 0.0) <= _LONGEST
    )


def _pause(attempts: RetryCallState) -> float:
    error = None if attempts.outcome is None else attempts.outcome.exception()
    asked = error.retry_after if isinstance(error, RequestFailedError) else None
    return _BACKOFF(attempts) if asked is None else asked


@retry(
    retry=retry_if_exception(_may_succeed),
    wait=_pause,
    stop=stop_after_attempt(4) | stop_before_delay(_LONGEST),
    reraise=True,
)
def send_once(address: str, body: bytes, message_id: str, key: bytes | None) -> None:
    """Send one request; the decorator repeats it after temporary failures."""
    headers = {"Content-Type": "application/json", **sign(message_id, body, key)}
    # protection: hanging-server-times-out
    outgoing.post(address, body, headers, timeout=TIMEOUT)


def sign(message_id: str, body: bytes, key: bytes | None) -> dict[str, str]:
    """Return the headers that identify and sign a message."""
    now = str(int(time.time()))
    headers = {"webhook-id": message_id, "webhook-timestamp": now}
    # protection: notifications-are-signed
    if key is not None:
        content = b".".join((message_id.encode(), now.encode(), body))
        digest = hmac.new(key, content, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers
