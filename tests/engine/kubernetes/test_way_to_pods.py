"""Failures on the way to a pod: how and when they are reported, and what every user does then."""

import json
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    NotRunningError,
    OrchestratorError,
    PlaceLostError,
)
from orchestrator.engine.kubernetes import network_proof, pod_services
from orchestrator.engine.kubernetes.channel import PodProcess
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.kubernetes.pod_services import PodService
from orchestrator.engine.kubernetes.pod_step import PodStep
from orchestrator.engine.kubernetes.port_forward import PortForward
from tests.engine.kubernetes.conftest import Api, Refusal, Stream
from tests.engine.kubernetes.test_channel import SUCCESS, failure, frame, received
from tests.engine.kubernetes.test_lost_pods import JOB, JOBS, PODS, pod
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.ports import free_port

pytestmark = pytest.mark.process
BINARY, CLOSE = 2, 8
NODE = 'error sending request: Post "https://192.0.2.1:10250/exec": dial tcp: connection refused'
AGAIN, GONE, REFUSED = EngineUnavailableError, NotRunningError, EngineError


def status(reason: str | None, message: str = "why", **rest: Any) -> bytes:
    said = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, **rest}
    return json.dumps({key: value for key, value in said.items() if value is not None}).encode()


def internal(message: str) -> bytes:
    return status("InternalError", message, code=500, details={"causes": [{"message": message}]})


def nonzero(**details: Any) -> bytes:
    return status("NonZeroExitCode", details=details)


@pytest.fixture
def known(api: Api, cluster: Cluster) -> Cluster:
    """A cluster that has accepted the user's credentials, and whose pod runs."""
    running: list[dict[str, Any]] = [
        {"name": name, "restartCount": 0, "state": {"running": {}}}
        for name in ("porter", "files", "probe", "agent-1", "service-db")
    ]
    api.answers |= {
        "/version": {"major": "1"}, "/readyz": {}, JOBS: JOB, f"{JOBS}/job": JOB,
        f"{PODS}/pod": pod(containerStatuses=running),
        PODS: {"items": [pod(containerStatuses=running)]},
    }  # fmt: skip
    cluster.request("GET", "/version")
    return cluster


@pytest.fixture
def the_pod(known: Cluster) -> JobPod:
    made = JobPod(known, "job")
    made.metadata = pod()["metadata"]
    return made


def result(cluster: Cluster) -> int | OrchestratorError:
    """Return the exit code of a command, or the error."""
    try:
        with closing(PodProcess(cluster, "pod", "porter", ["true"])) as process:
            list(process.output())
            return process.wait()
    except OrchestratorError as error:
        return error


def says(*frames: bytes) -> Stream:
    return lambda stream: stream.sendall(b"".join(frames))


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize(
    ("said", "before", "after"),
    [
        pytest.param(internal(f"Internal error occurred: {NODE}"), AGAIN, AGAIN, id="no kubelet"),
        pytest.param(internal("error dialing backend: EOF"), AGAIN, AGAIN, id="backend"),
        pytest.param(status("InternalError", NODE), AGAIN, AGAIN, id="no code"),
        pytest.param(status("Timeout", code=504), AGAIN, AGAIN, id="timeout"),
        pytest.param(status("TooManyRequests", code=429), AGAIN, AGAIN, id="too many"),
        pytest.param(status("Unauthorized", code=401), AGAIN, AGAIN, id="unauthorized"),
        pytest.param(status("Conflict"), AGAIN, AGAIN, id="conflict"),
        pytest.param(status("Invented"), AGAIN, AGAIN, id="unknown reason"),
        pytest.param(status(None), AGAIN, AGAIN, id="no reason"),
        pytest.param(status("InternalError", code="x"), AGAIN, AGAIN, id="no number"),
        pytest.param(internal('container not found ("a")'), GONE, GONE, id="no container"),
        pytest.param(internal("task 4f: no running task found"), GONE, GONE, id="runtime"),
        pytest.param(status("NotFound", code=404), GONE, GONE, id="not found"),
        pytest.param(status("NotFound"), GONE, GONE, id="not found, no code"),
        pytest.param(internal('exec: "x": stat x: no such file'), REFUSED, AGAIN, id="command"),
        pytest.param(status("BadRequest", code=400), REFUSED, AGAIN, id="bad request"),
        pytest.param(status("Forbidden", code=403), REFUSED, AGAIN, id="forbidden"),
        pytest.param(SUCCESS, 0, 0, id="success"),
        pytest.param(failure("7"), 7, 7, id="exit code"),
        pytest.param(
            nonzero(causes=[{"message": "a"}, {"reason": "ExitCode", "message": "3"}]), 3, 3,
            id="other causes",
        ),
        pytest.param(failure("0"), AGAIN, AGAIN, id="exit code 0"),
        pytest.param(failure("many"), AGAIN, AGAIN, id="exit code no number"),
        pytest.param(nonzero(), AGAIN, AGAIN, id="no causes"),
        pytest.param(nonzero(causes=[1]), AGAIN, AGAIN, id="causes of another form"),
        pytest.param(status("NonZeroExitCode"), AGAIN, AGAIN, id="no details"),
        pytest.param(b"", AGAIN, AGAIN, id="empty"),
        pytest.param(b"nonsense", AGAIN, AGAIN, id="no JSON"),
        pytest.param(b"[" * 100_000, AGAIN, AGAIN, id="deep"),
        pytest.param(b"[]", AGAIN, AGAIN, id="no object"),
        pytest.param(b'{"status": 1}', AGAIN, AGAIN, id="no status"),
    ],
)  # fmt: skip
def test_status_on_the_channel(
    api: Api, known: Cluster, said: bytes, before: object, after: object, *, has_begun: bool
) -> None:
    """Nobody knows whether the command has begun, so no status but an exit code is its end."""
    output = [frame(BINARY, b"\x01begun")] if has_begun else []
    # What follows the status counts no more.
    api.streams = [says(*output, frame(BINARY, b"\x03" + said), frame(BINARY, b"\x03" + SUCCESS))]
    found, expected = result(known), after if has_begun else before
    if isinstance(expected, int):
        assert found == expected
    else:
        assert type(found) is expected, found
        assert getattr(found, "key", "") != "cluster.unreachable"


HTML = b"<html><h1>Bad Gateway</h1></html>"


@pytest.mark.parametrize(
    ("code", "body", "expected", "is_untouched"),
    [
        (500, internal(NODE), AGAIN, True),
        (500, internal('container not found ("a")'), GONE, True),
        (404, status("NotFound", 'pods "pod" not found'), GONE, True),
        (404, b"pod does not exist", GONE, True),
        (404, HTML, GONE, True),
        (400, status("BadRequest", "pod pod does not have a host assigned"), GONE, True),
        (400, status("BadRequest", "Upgrade request required"), REFUSED, True),
        (400, HTML, AGAIN, True),
        (401, status("Unauthorized"), AGAIN, True),
        (401, b"Unauthorized", AGAIN, True),
        (403, status("Forbidden", "forbidden: "), REFUSED, True),
        (403, HTML, REFUSED, True),
        (405, HTML, AGAIN, True),
        (408, status("Timeout"), AGAIN, True),
        (409, status("Conflict"), AGAIN, True),
        (429, status("TooManyRequests"), AGAIN, True),
        (429, b"", AGAIN, True),
        (503, status("ServiceUnavailable"), AGAIN, True),
        (503, HTML, AGAIN, True),
        (504, status("Timeout"), AGAIN, True),
        # Behind a load balancer that had no answer, or a connection that ends, it may have begun.
        (502, HTML, AGAIN, False),
        (504, HTML, AGAIN, False),
        (0, b"", AGAIN, False),
        (101, b"", AGAIN, False),
        (200, HTML, AGAIN, True),
    ],
)
def test_answer_instead_of_a_connection(
    api: Api, known: Cluster, code: int, body: bytes, expected: type, *, is_untouched: bool
) -> None:
    api.streams = [Refusal(code, body)]
    found = result(known)
    assert type(found) is expected, found
    assert isinstance(found, OrchestratorError)
    if expected is AGAIN:
        assert found.key == ("cluster.unreachable" if is_untouched else "cluster.cut")
    # Newer servers accept another protocol before they know whether the node can be reached.
    assert api.offered == ["v4.channel.k8s.io"]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("9999", 60), ("9" * 5000, 60), ("-1", 0), ("soon", 0), ("nan", 0)],
)
def test_server_says_how_long_to_wait(
    api: Api, known: Cluster, header: str, seconds: float
) -> None:
    api.streams = [Refusal(429, b"", (("Retry-After", header),))]
    found = result(known)
    assert isinstance(found, EngineUnavailableError)
    assert found.retry_after == seconds


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_credentials_follow_no_redirect(api: Api, known: Cluster, code: int) -> None:
    elsewhere = known.configuration.host.replace("http", "ws", 1) + "/elsewhere"
    api.streams = [
        Refusal(code, HTML, (("Location", elsewhere),)),
        says(frame(BINARY, b"\x03" + SUCCESS)),
    ]
    assert isinstance(result(known), EngineUnavailableError)
    assert not [path for _, path in api.asked if path == "/elsewhere"]


# What every user of a pod makes of it


def porter(stream: socket.socket) -> None:
    """Answer one call, as the porter does."""
    received(stream.makefile("rb"))
    stream.sendall(frame(BINARY, b'\x01{"state": "waiting", "run": 1}\n'))


def porter_reads(stream: socket.socket) -> None:
    received(stream.makefile("rb"))
    stream.sendall(frame(BINARY, b'\x01{"final": true}\n'))


def call(the_pod: JobPod) -> object:
    return the_pod.porter.state("agent")


def read(the_pod: JobPod) -> object:
    return list(PodStep(the_pod, "agent", 1).logs())


def probe(the_pod: JobPod) -> object:
    return network_proof._run(the_pod, "probe", "look")["reached"]


def feed(the_pod: JobPod) -> object:
    place = PodPlace.__new__(PodPlace)
    place._pod = the_pod
    return place._feed("porter", {})


def log(the_pod: JobPod) -> object:
    return next(iter(PodService(the_pod, "service-db").logs())).data


def port(the_pod: JobPod) -> object:
    with closing(PortForward(the_pod)) as made:
        made.listen({3000: free_port()})
        return list(made.ports)


def enter(the_pod: JobPod) -> object:
    with closing(PodStep(the_pod, "agent", 1).enter(("true",), None)) as process:
        return [chunk.data for chunk in process.output()]


def ends(output: bytes) -> Stream:
    return says(frame(BINARY, b"\x01" + output), frame(BINARY, b"\x03" + SUCCESS))


NUMBERS = b"".join(frame(BINARY, bytes([n, *struct.pack("<H", 3000)])) for n in (0, 1))
USERS: dict[str, tuple[Callable[[JobPod], object], Stream, object]] = {
    "call": (call, porter, "waiting"),
    "read": (read, porter_reads, []),
    "probe": (probe, ends(b'{"reached": []}'), []),
    "feed": (feed, ends(b"begun\n"), None),
    "log": (log, says(frame(BINARY, b"line")), b"line"),
    "port": (port, says(NUMBERS), [3000]),
    "enter": (enter, ends(b"done"), [b"done"]),
}
BEFORE: dict[str, Stream | Refusal] = {
    "no kubelet": Refusal(500, internal(f"error dialing backend: {NODE}")),
    "new kubelet": Refusal(404, b"pod does not exist"),
    "container not found": Refusal(500, internal('container not found ("porter")')),
    "conflict": Refusal(409, status("Conflict", code=409)),
}
LATER: dict[str, Stream | Refusal] = {
    "gateway": Refusal(502, HTML),
    "cut": says(b""),
    "no kubelet, accepted": says(frame(BINARY, b"\x03" + internal(NODE))),
    "no container, accepted": says(frame(BINARY, b"\x03" + internal("container not found"))),
    "closed": says(frame(CLOSE, struct.pack(">H", 1011))),
}


REPEATED = [
    (user, failed)
    for user in USERS
    for failed in (*BEFORE, *LATER)
    # What others say to a command or a port is not repeated; a log has no status.
    if failed in BEFORE or user not in ("enter", "port", "log") or (user, failed) == ("log", "cut")
]


@pytest.mark.parametrize(("user", "failed"), REPEATED)
def test_way_to_a_node_is_tried_again(
    api: Api, the_pod: JobPod, monkeypatch: pytest.MonkeyPatch, user: str, failed: str
) -> None:
    monkeypatch.setattr(pod_services, "_PAUSE", 0.01)
    use, good, expected = USERS[user]
    api.streams = [(BEFORE | LATER)[failed], good]
    assert use(the_pod) == expected
    assert len(api.offered) == 2


@pytest.mark.parametrize("failed", LATER)
def test_command_of_a_user_never_runs_twice(api: Api, the_pod: JobPod, failed: str) -> None:
    api.streams = [LATER[failed], ends(b"again")]
    with pytest.raises(OrchestratorError):
        enter(the_pod)
    assert len(api.offered) == 1


def test_container_that_has_ended_is_not_waited_for(api: Api, the_pod: JobPod) -> None:
    over = {"name": "agent-1", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
    porter_over = {**over, "name": "porter"}
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[over, porter_over])
    gone = Refusal(500, internal("container not found"))
    api.streams = [gone] * 2 + [says(frame(BINARY, b"\x03" + internal("container not found")))]
    with pytest.raises(NotRunningError):
        enter(the_pod)
    for _ in range(2):
        with pytest.raises(PlaceLostError) as caught:
            call(the_pod)
        assert caught.value.key == "place.ended"
    assert api.streams == []


def test_port_is_reached_when_its_node_is_back(api: Api, the_pod: JobPod) -> None:
    """A connection waits for its node, instead of being closed."""

    def echo(stream: socket.socket) -> None:
        stream.sendall(NUMBERS)
        stream.sendall(frame(BINARY, b"\0" + received(stream.makefile("rb"))[1][1:]))

    here = free_port()
    with closing(PortForward(the_pod)) as made:
        api.streams = [says(NUMBERS), BEFORE["no kubelet"], BEFORE["new kubelet"], echo]
        made.listen({3000: here})
        with socket.create_connection(("127.0.0.1", here), 20) as stream:
            stream.sendall(b"hello")
            assert stream.recv(5) == b"hello"
    eventually(lambda: api.streams == [])


# What a refusal says


SILENT = pytest.mark.parametrize(
    "silent",
    [
        b'{"message": "forbidden: ", "code": 403}', b'{"message": "pods \\"pod\\" is forbidden: "}',
        b'{"message": ""}', b'{"message": null}', b"{}", b"[]", b"", HTML,
    ],
)  # fmt: skip
"""Answers of servers that do not say why."""


@SILENT
def test_forbidden_connection_names_the_rights(api: Api, known: Cluster, silent: bytes) -> None:
    """From version 1.35 on, servers ask for both verbs, and say `forbidden: ` and nothing else."""
    api.streams = [Refusal(403, silent)]
    with raises("cluster.command-refused", "`create` `pods/exec`", "`get` `pods/exec`") as caught:
        PodProcess(known, "pod", "porter", ["true"])
    assert "orchestrator doctor --engine kubernetes" in (caught.value.hint or "")


@SILENT
@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", PODS, "`list` `pods`"),
        ("GET", f"{PODS}/pod", "`get` `pods`"),
        ("POST", JOBS, "`create` `jobs`"),
        ("DELETE", f"{JOBS}/job", "`delete` `jobs`"),
        ("GET", "/api/v1/namespaces/agents", "`get` `namespaces`"),
        ("GET", "/version", "403"),
    ],
)
def test_forbidden_request_names_the_right(
    api: Api, known: Cluster, silent: bytes, method: str, path: str, right: str
) -> None:
    api.failures = [(403, silent.decode())]
    with raises("cluster.refused", right):
        known.request(method, path)


@pytest.mark.parametrize("code", [400, 402, 405, 409, 410, 413, 422, 451])
def test_refusal_without_words_has_its_number(api: Api, known: Cluster, code: int) -> None:
    for body in ('{"message": ""}', "{}"):
        api.failures = [(code, body)]
        with raises("cluster.refused", str(code)):
            known.request("GET", PODS)


def test_words_of_a_refusal_cannot_change_the_terminal(api: Api, known: Cluster) -> None:
    api.streams = [Refusal(400, status("BadRequest", "a\x1b[2Jb\nc" + "d" * 10_000))]
    found = result(known)
    assert isinstance(found, EngineError)
    assert found.message.isprintable()
    assert len(found.message) < 1000
