"""Send the trace of a run to a collector by OTLP/HTTP, configured by environment variables.

Nothing is sent unless the user asks for it (`--report otlp-http`) and one of these variables has an
address: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT`, to which the path
`/v1/traces` is appended.
"""

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from urllib.parse import unquote

from orchestrator.errors import ConfigError
from orchestrator.reports.model import RunReport
from orchestrator.reports.otlp import trace

_TIMEOUT = 2.0
"""Maximum number of seconds that the end of a run waits for the collector."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Refuse a redirect, so that the trace is sent only to the given address."""


def endpoint(environ: Mapping[str, str]) -> str:
    """Return the address that traces are sent to.

    Raises:
        ConfigError: No variable has a valid address.
    """
    address = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not address and (base := environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")):
        address = f"{base.rstrip('/')}/v1/traces"
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            "`--report otlp-http` needs the address of a collector",
            hint="set OTEL_EXPORTER_OTLP_ENDPOINT, for example to `http://localhost:4318`",
        )
    return address


def export_trace(report: RunReport, environ: Mapping[str, str]) -> None:
    """Send the trace of a run to the collector that the environment variables name.

    Raises:
        OSError: The collector did not accept the trace within two seconds.
        ConfigError: No variable has the address of a collector.
    """
    body = json.dumps(trace(report, environ)).encode()
    headers = {"Content-Type": "application/json", **_headers(environ)}
    request = urllib.request.Request(  # noqa: S310  # the scheme was checked
        endpoint(environ), body, headers, method="POST"
    )
    # protection: traces-follow-no-redirect
    opener = urllib.request.build_opener(_NoRedirects)

    def send() -> None:
        with opener.open(request, timeout=_TIMEOUT):
            pass

    _in_time(send)


def _in_time(send: Callable[[], None]) -> None:
    """Call a function that sends the trace, and wait at most two seconds for its end.

    The timeout of a socket applies to each read: a collector that sends one byte each second would
    never exceed it. Looking up the name of a host has no timeout at all.
    """
    problems: list[Exception] = []

    def attempt() -> None:
        try:
            send()
        except (OSError, HTTPException, ValueError) as error:
            problems.append(error)

    # The process does not wait for a daemon thread when it ends.
    thread = threading.Thread(target=attempt, name="otlp", daemon=True)
    thread.start()
    # protection: no-collector-delays-end-of-run
    thread.join(_TIMEOUT)
    if thread.is_alive():
        raise TimeoutError(f"the OpenTelemetry collector did not answer within {_TIMEOUT:g} s")
    for problem in problems:
        if isinstance(problem, OSError):
            raise problem
        said = f"the request to the collector failed: {type(problem).__name__}"
        raise OSError(said) from problem


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    given = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
    text = given or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
