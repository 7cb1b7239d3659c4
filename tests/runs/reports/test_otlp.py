"""Tests of traces, decoded with the messages of OpenTelemetry."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from orchestrator.base import outgoing
from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports import otlp
from orchestrator.runs.reports.otlp import endpoint, export_trace
from orchestrator.state.record.states import RunState, WorkerState
from tests.support.errors import raises
from tests.support.live import PATIENCE
from tests.support.reports import RUN_ID, ended, ended_run, every_status

RESULTS = {"success", "failure", "timeout", "error", "cancellation", "skip"}
SECRET = "worker text"


def decoded(text: str | bytes) -> list[Span]:
    """Decode an export request; OTLP writes ids in hex, where protobuf has base64."""
    document = json.loads(text)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    request = Parse(json.dumps(document), ExportTraceServiceRequest())
    return [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]


def attributes(span: Span) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


def test_spans_are_a_tree_whose_times_nest(tmp_path: Path) -> None:
    report = every_status(tmp_path, text=SECRET)
    spans = decoded(otlp.render(report))
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans) == 1 + 5 * len(report.workers)
    assert len({span.trace_id for span in spans}) == 1
    (root,) = (span for span in spans if not span.parent_span_id)
    assert (root.kind, root.name) == (Span.SPAN_KIND_SERVER, "RUN nightly")
    for span in spans:
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        if span is not root:
            parent = by_id[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_results_are_those_of_the_conventions_and_no_text_of_workers(tmp_path: Path) -> None:
    text = otlp.render(every_status(tmp_path, text=SECRET))
    assert SECRET not in text
    workers = {}
    for span in decoded(text):
        found = attributes(span)
        if "cicd.pipeline.task.name" in found:
            workers[found["cicd.pipeline.task.name"]] = found
    assert {found["cicd.pipeline.task.run.result"] for found in workers.values()} == RESULTS
    for found in workers.values():
        assert found["cicd.pipeline.task.run.url.full"].startswith("file:///")
        fine = found["cicd.pipeline.task.run.result"] == "success"
        assert ("error.type" in found) != fine


@pytest.mark.parametrize(
    ("status", "rest", "result"),
    [
        (Status.SUCCESS, {}, "success"),
        (Status.TIMEOUT, {}, "timeout"),
        (Status.PARTIAL, {}, "failure"),
        (Status.SUCCESS, {"result": None, "state": RunState.DIED}, "error"),
    ],
)
def test_result_of_a_run(
    tmp_path: Path, status: Status, rest: dict[str, object], result: str
) -> None:
    report = ended_run(tmp_path, [ended(tmp_path, 1, status)], **rest)
    assert otlp.run_result(report) == result
    for reason, expected in ((Reason.CANCELLED, "cancellation"), (Reason.ENGINE_ERROR, "error")):
        bad = ended_run(tmp_path, [ended(tmp_path, 1, Status.FAILED, reason=reason)])
        assert otlp.run_result(bad) == expected


def test_result_of_a_task(tmp_path: Path) -> None:
    """A task whose setup failed did not start, but it was not skipped."""
    failed = Status.FAILED
    for reason, expected in ((Reason.SETUP_FAILED, "error"), (Reason.CONFLICT, "skip")):
        worker = ended(tmp_path, 1, failed, reason=reason, name="build", message=SECRET)
        assert worker.started_at is None
        assert otlp.worker_result(worker) == expected
    assert otlp.worker_result(ended(tmp_path, 1, name="build", started_at=None)) == "skip"


def test_ids_are_the_same_when_a_run_is_resumed_and_below_a_given_parent(tmp_path: Path) -> None:
    done = ended_run(tmp_path, [ended(tmp_path, 1)])
    worker = ended(tmp_path, 1, result=None, state=WorkerState.RUNNING)
    live = ended_run(tmp_path, [worker], state=RunState.RUNNING, result=None)
    assert decoded(otlp.render(done))[0].trace_id == decoded(otlp.render(live))[0].trace_id
    parent = {"TRACEPARENT": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    root, *_ = decoded(otlp.render(done, parent))
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    invalid = decoded(otlp.render(done, {"TRACEPARENT": "00-x-y-01"}))[0]
    assert not invalid.parent_span_id


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, Message, bytes]]]]:
    """Return the address of a collector, and what it received."""
    received: list[tuple[str, Message, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers, body))
            self.send_response(302 if self.path.startswith("/moved") else 200)
            self.send_header("Location", "/v1/traces")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_trace(
    tmp_path: Path, collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_TIMEOUT", PATIENCE)
    address, received = collector
    report = ended_run(tmp_path, [ended(tmp_path, 1)])
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{address}/",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b, x-other=c",
    }
    export_trace(report, environ)
    ((path, headers, body),) = received
    assert path == "/v1/traces"
    assert (headers["x-key"], headers["x-other"]) == ("a b", "c")
    assert headers["content-type"] == "application/json"
    assert attributes(decoded(body)[0])["cicd.pipeline.run.id"] == RUN_ID
    with pytest.raises(OSError, match="302"):
        export_trace(report, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{address}/moved"})
    assert len(received) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, None),
        ({"partialSuccess": None}, None),
        ({"partialSuccess": {}}, None),
        ({"partialSuccess": {"rejectedSpans": "3"}}, "rejected 3 spans: no reason given"),
        (
            {"partialSuccess": {"rejectedSpans": 2, "errorMessage": "too\nlong"}},
            "2 spans: too long",
        ),
        ({"partialSuccess": {"errorMessage": "old version"}}, "the collector warns: old version"),
        ("[" * 10**5, None),
        ([1], None),
    ],
)
def test_what_a_collector_rejects_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object, told: str | None
) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    monkeypatch.setattr(outgoing, "post", lambda *_, **__: text.encode())
    report = ended_run(tmp_path, [ended(tmp_path, 1)])
    said = export_trace(report, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert said is None if told is None else told in str(said)


def test_variables_of_the_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, bytes, dict[str, str], float]] = []

    def post(address: str, body: bytes, headers: dict[str, str], *, timeout: float) -> bytes:
        sent.append((address, body, headers, timeout))
        return b""

    monkeypatch.setattr(outgoing, "post", post)
    report, base = ended_run(tmp_path, [ended(tmp_path, 1)]), "OTEL_EXPORTER_OTLP_"
    general = {
        f"{base}ENDPOINT": "http://a.example:4318/base/",
        f"{base}HEADERS": "authorization=Bearer%20a%3Db,,x-y= z ",
        f"{base}TIMEOUT": "1500",
        f"{base}PROTOCOL": "http/json",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=a%2Cb",
    }
    export_trace(report, general)
    address, body, headers, timeout = sent.pop()
    assert (address, timeout) == ("http://a.example:4318/base/v1/traces", 1.5)
    assert headers["authorization"] == "Bearer a=b"
    assert headers["x-y"] == "z"
    resource = json.loads(body)["resourceSpans"][0]["resource"]["attributes"]
    values = {one["key"]: one["value"]["stringValue"] for one in resource}
    assert values == {"service.name": "mine", "team": "a,b"}
    # Those of traces come first; empty ones are none.
    own = {
        f"{base}TRACES_ENDPOINT": "https://b.example/x",
        f"{base}TRACES_HEADERS": "k=v",
        f"{base}TRACES_TIMEOUT": " ",
        f"{base}PROTOCOL": "grpc",
        f"{base}TRACES_PROTOCOL": "http/json",
        "OTEL_SERVICE_NAME": "",
    }
    export_trace(report, general | own)
    address, body, headers, timeout = sent.pop()
    assert (address, timeout) == ("https://b.example/x", 1.5)
    assert (headers["k"], "authorization" in headers) == ("v", False)
    assert b'{"key": "service.name", "value": {"stringValue": "other"}}' in body
    for off in ({"OTEL_SDK_DISABLED": "True"}, {"OTEL_TRACES_EXPORTER": "none"}):
        assert export_trace(report, general | off) is None
    assert sent == []
    for name, wrong in (
        (f"{base}PROTOCOL", "grpc"),
        (f"{base}PROTOCOL", "http/protobuf"),
        (f"{base}TIMEOUT", "0"),
        (f"{base}TIMEOUT", "2s"),
        (f"{base}TIMEOUT", "61000"),
        (f"{base}HEADERS", "t0psecret"),
        (f"{base}HEADERS", "a=t0psecret%0Ab"),
        (f"{base}HEADERS", "a b=t0psecret"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team"),
    ):
        with raises("variable.invalid", name) as caught:
            endpoint(general | {name: wrong})
        assert "t0psecret" not in str(caught.value)


def test_a_collector_that_is_down_is_an_error_of_the_report_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    report = ended_run(tmp_path, [ended(tmp_path, 1)])
    with pytest.raises(OSError, match="refused"):
        export_trace(report, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"})
    with pytest.raises(ConfigError):
        endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317"})


def test_a_collector_that_never_ends_its_answer_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A byte every 50 ms: no single read takes longer than the timeout.
    monkeypatch.setattr(otlp, "_TIMEOUT", 0.3)
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                for _ in range(200):
                    if left.wait(0.05):
                        return
                    connection.sendall(b"y")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        report = ended_run(tmp_path, [ended(tmp_path, 1)])
        with pytest.raises(OSError, match="no answer within"):
            export_trace(report, {"OTEL_EXPORTER_OTLP_ENDPOINT": address})
        left.set()
        thread.join()
