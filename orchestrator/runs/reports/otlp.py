"""Render a run as a trace in OTLP/JSON, and send it to a collector by OTLP/HTTP.

The trace has a span for the run, each worker and each worker's phases.

Names follow the semantic conventions of OpenTelemetry for CI/CD, and for the agent's span those for
generative AI, which are in development and may change. Ids are derived from the run's id, so that a
resumed run has one trace; `TRACEPARENT` sets the parent span of the trace. No attribute has text of
workers.

Nothing is sent unless the user asks for it (`--report otlp-http`) and one of these variables has an
address: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT`, to which the path
`/v1/traces` is appended. The other variables are those of OpenTelemetry's specification.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.base import outgoing
from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.runs.reports.model import ERRORS, RunReport
from orchestrator.state.record.states import Phase, PhaseKind, RunState
from orchestrator.state.record.worker_view import WorkerView

_TIMEOUT = 2.0
"""Maximum number of seconds that the end of a run waits for the collector, unless a variable sets
it.
"""
_LONGEST = 60.0
_LONGEST_MESSAGE = 300
_PROTOCOL = "http/json"
_EXPORTER = "OTEL_EXPORTER_OTLP_"
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SEMANTIC_CONVENTIONS = "https://opentelemetry.io/schemas/1.44.0"
_SERVER, _INTERNAL = 2, 1
_OK, _ERROR = 1, 2
_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

Json = dict[str, object]


def render(report: RunReport, environ: Mapping[str, str] | None = None) -> str:
    """Return the trace of a run as one line of JSON.

    Args:
        report: The run.
        environ: Variables, of which `TRACEPARENT` names the span that the run belongs to.
    """
    return json.dumps(trace(report, environ or {}), separators=(",", ":")) + "\n"


def trace(report: RunReport, environ: Mapping[str, str]) -> Json:
    """Return the trace of a run as an export request of OTLP/HTTP."""
    spans = list(_Trace(report, environ).spans())
    scope = {"scope": {"name": "orchestrator"}, "schemaUrl": _SEMANTIC_CONVENTIONS, "spans": spans}
    named = _pairs(environ.get(_RESOURCE, "")) or {}
    service = environ.get("OTEL_SERVICE_NAME", "").strip() or named.get("service.name")
    attributes = _attributes(named | {"service.name": service or "orchestrator"})
    resource = {"attributes": attributes}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


@dataclass(frozen=True, kw_only=True)
class _Span:
    span_id: str
    parent: str
    name: str
    start: datetime
    end: datetime
    result: str
    attributes: Mapping[str, object]
    kind: int = _INTERNAL

    def to_json(self, trace_id: str) -> Json:
        fine = self.result in {"success", "skip"}
        return {
            "traceId": trace_id,
            "spanId": self.span_id,
            **({"parentSpanId": self.parent} if self.parent else {}),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": _nanoseconds(self.start),
            "endTimeUnixNano": _nanoseconds(max(self.start, self.end)),
            "attributes": _attributes(self.attributes),
            "status": {"code": _OK if fine else _ERROR},
        }


class _Trace:
    """The spans of a run."""

    def __init__(self, report: RunReport, environ: Mapping[str, str]) -> None:
        self._report = report
        parent = _PARENT.fullmatch(environ.get("TRACEPARENT", ""))
        self._id = parent[1] if parent else _digest(report.run_id, 32)
        self._parent = parent[2] if parent else ""

    def spans(self) -> Iterator[Json]:
        """Yield the spans of the trace, each after its parent."""
        report, result = self._report, run_result(self._report)
        name = report.name or "parallel"
        ends = [phase.end for worker in report.workers for phase in worker.phases]
        yield _Span(
            span_id=self._span_id("run"),
            parent=self._parent,
            name=f"RUN {name}",
            kind=_SERVER,
            start=report.started_at,
            end=max([report.until, *ends]),
            result=result,
            attributes={
                "cicd.pipeline.action.name": "RUN",
                "cicd.pipeline.name": name,
                "cicd.pipeline.run.id": report.run_id,
                "cicd.pipeline.result": result,
                "error.type": None if result in {"success", "skip"} else result,
                "vcs.ref.base.revision": report.base,
            },
        ).to_json(self._id)
        for worker in self._report.workers:
            span = self._worker(worker)
            yield span.to_json(self._id)
            for number, phase in enumerate(worker.phases):
                yield self._phase(worker, number, phase, span.span_id).to_json(self._id)

    def _worker(self, worker: WorkerView) -> _Span:
        start = worker.phases[0].start if worker.phases else self._report.started_at
        result = worker_result(worker)
        return _Span(
            span_id=self._span_id("worker", worker.key),
            parent=self._span_id("run"),
            name=worker.key,
            start=start,
            end=worker.phases[-1].end if worker.phases else start,
            result=result,
            attributes={
                "cicd.pipeline.task.name": worker.key,
                "cicd.pipeline.task.run.id": f"{self._report.run_id}/{worker.worker_id}",
                "cicd.pipeline.task.run.url.full": worker.directory.absolute().as_uri(),
                "cicd.pipeline.task.run.result": result,
                "error.type": worker.reason.value if worker.reason else None,
                "vcs.ref.head.name": worker.spec.branch,
                "orchestrator.attempts": len(worker.attempts) + 1,
            },
        )

    def _phase(self, worker: WorkerView, number: int, phase: Phase, parent: str) -> _Span:
        name = phase.kind.value
        attributes: Json = {
            "orchestrator.attempt": phase.attempt,
            "error.type": f"{name}_failed" if phase.problem else None,
        }
        if phase.kind is PhaseKind.AGENT:
            # The names are those of the conventions for generative AI.
            result = worker.result
            name = f"invoke_agent {worker.agent or 'agent'}"
            attributes |= {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": worker.agent,
                "gen_ai.request.model": worker.spec.model_name,
                "orchestrator.tokens": result.tokens if result else None,
                "orchestrator.cpu_time_seconds": result.cpu_time if result else None,
                "orchestrator.peak_memory_bytes": result.peak_memory if result else None,
                "orchestrator.cost_usd": worker.cost,
            }
        return _Span(
            span_id=self._span_id("worker", worker.key, str(number)),
            parent=parent,
            name=name,
            start=phase.start,
            end=phase.end,
            result="failure" if phase.problem else "success",
            attributes=attributes,
        )

    def _span_id(self, *names: str) -> str:
        return _digest("/".join((self._report.run_id, *names)), 16)


def run_result(report: RunReport) -> str:
    """Return the name of a run's result in the semantic conventions of OpenTelemetry."""
    if report.state is RunState.DIED:
        return "error"
    if any(worker.reason is Reason.CANCELLED for worker in report.workers):
        return "cancellation"
    if any(worker.reason in ERRORS for worker in report.workers):
        return "error"
    if report.status is None or report.status is Status.SUCCESS:
        return "success"
    return "timeout" if report.status is Status.TIMEOUT else "failure"


def worker_result(worker: WorkerView) -> str:
    """Return the name of a worker's result in the semantic conventions of OpenTelemetry."""
    if worker.reason is Reason.CANCELLED:
        return "cancellation"
    if worker.result is not None and worker.result.never_ran:
        return "skip"
    if worker.reason in ERRORS:
        return "error"
    if worker.status is Status.TIMEOUT:
        return "timeout"
    return "success" if worker.status in (Status.SUCCESS, None) else "failure"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def _nanoseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1_000_000) * 1000)


def _attributes(values: Mapping[str, object]) -> list[Json]:
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: object) -> Json:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


class _Partial(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    rejected_spans: int = Field(default=0, alias="rejectedSpans")
    error_message: str = Field(default="", alias="errorMessage")


class _Answer(BaseModel):
    """A collector's answer. Strings stand for numbers of 64 bits."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    partial_success: _Partial | None = Field(default=None, alias="partialSuccess")


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Return whether the variables of OpenTelemetry turn traces off."""
    return (
        environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    )


def endpoint(environ: Mapping[str, str]) -> str:
    """Return the address that traces are sent to, after a check of all variables.

    Raises:
        ConfigError: No variable has a valid address, or the value of another one cannot be used.
    """
    _, protocol = _of_exporter(environ, "PROTOCOL")
    if protocol not in ("", _PROTOCOL):
        raise _unusable(environ, "PROTOCOL", f"must be `{_PROTOCOL}`: nothing else is spoken")
    _seconds(environ)
    _headers(environ)
    if _pairs(environ.get(_RESOURCE, "")) is None:
        raise ConfigError(
            f"environment variable `{_RESOURCE}` must be `key=value,key=value`, percent-encoded",
            key="variable.invalid",
        )
    name, address = _of_exporter(environ, "ENDPOINT")
    if address and name == f"{_EXPORTER}ENDPOINT":
        address = f"{address.rstrip('/')}/v1/traces"
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            "`--report otlp-http` needs the address of a collector",
            key="collector.missing",
            hint="set OTEL_EXPORTER_OTLP_ENDPOINT, for example to `http://localhost:4318`",
        )
    return address


def _of_exporter(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the variable of the exporter in force, and its value; an empty one is none."""
    names = (f"{_EXPORTER}TRACES_{name}", f"{_EXPORTER}{name}")
    set_ones = ((key, environ[key].strip()) for key in names if environ.get(key, "").strip())
    return next(set_ones, (names[1], ""))


def _unusable(environ: Mapping[str, str], name: str, why: str) -> ConfigError:
    variable, _ = _of_exporter(environ, name)
    return ConfigError(f"environment variable `{variable}` {why}", key="variable.invalid")


def _seconds(environ: Mapping[str, str]) -> float:
    _, text = _of_exporter(environ, "TIMEOUT")
    if not text:
        return _TIMEOUT
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _LONGEST * 1000):
        most = f"{_LONGEST * 1000:.0f}"
        raise _unusable(environ, "TIMEOUT", f"must be a number of milliseconds from 1 to {most}")
    return int(text) / 1000


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    _, text = _of_exporter(environ, "HEADERS")
    found = _pairs(text)
    if found is None or not all(
        _HEADER.fullmatch(name) and value.isprintable() and value.isascii()
        for name, value in found.items()
    ):
        # The value is a credential, as a rule.
        raise _unusable(environ, "HEADERS", "must be `name=value,name=value`, percent-encoded")
    return found


def _pairs(text: str) -> dict[str, str] | None:
    """Return pairs of names and percent-encoded values; None if the text has another form."""
    found: dict[str, str] = {}
    for item in filter(str.strip, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            return None
        found[unquote(name.strip())] = unquote(value.strip())
    return found


def export_trace(report: RunReport, environ: Mapping[str, str]) -> str | None:
    """Send the trace of a run to the collector that the environment variables name.

    Returns:
        What the collector says of spans that it did not accept, or as a warning; None if nothing.

    Raises:
        OSError: The collector did not accept the trace in time.
        ConfigError: A variable is missing, or its value cannot be used.
    """
    if is_disabled(environ):
        return None
    address, timeout = endpoint(environ), _seconds(environ)
    headers = {"Content-Type": "application/json", **_headers(environ)}
    body = json.dumps(trace(report, environ)).encode()
    answer = outgoing.post(address, body, headers, timeout=timeout)
    try:
        told = _Answer.model_validate_json(answer or b"{}").partial_success or _Partial()
    except ValidationError:
        # Some collectors answer in protobuf although they were asked in JSON.
        return None
    said = one_line(told.error_message, limit=_LONGEST_MESSAGE)
    if told.rejected_spans:
        return f"the collector rejected {told.rejected_spans} spans: {said or 'no reason given'}"
    return f"the collector warns: {said}" if said else None
