"""Runs in a pod, to find out what the pod can reach. It needs nothing but the standard library.

`serve PORT SECONDS` accepts connections until there was none for so long. `look TARGET…` tries the
targets once, besides those that the pod itself knows. `prove SECONDS TARGET…` tries them until none
was reached three times in a row, `reach SECONDS TARGET` until it was reached, both for that many
seconds at most. A target is `tcp:ADDRESS:PORT` or `udp:ADDRESS:PORT`.
"""

import json
import os
import select
import socket
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

_ROUND = 0.5
_ROUNDS = 3
_QUERY = b"\0\7\1\0\0\1\0\0\0\0\0\0\12kubernetes\7default\3svc\7cluster\5local\0\0\1\0\1"
"""A question to a name server, which answers even if it knows no such name."""


def try_targets(targets: list[str], seconds: float) -> list[str]:
    """Return the targets that accepted a connection or answered, within some seconds."""
    waiting: dict[int, tuple[str, socket.socket]] = {}
    found = set()
    poll = select.poll()
    for target in targets:
        kind, _, rest = target.partition(":")
        host, _, port = rest.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        stream = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        stream.setblocking(False)
        waiting[stream.fileno()] = (target, stream)
        try:
            stream.connect((host, int(port)))
            if kind == "udp":
                stream.send(_QUERY)
        except BlockingIOError:
            pass  # poll tells
        except (OSError, ValueError):
            # A refused connection is none: policies may be enforced by refusals.
            waiting.pop(stream.fileno())[1].close()
            continue
        poll.register(stream, select.POLLOUT if kind == "tcp" else select.POLLIN)
    until = time.monotonic() + seconds
    while waiting and (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            target, stream = waiting.pop(number)
            poll.unregister(number)
            with closing(stream), suppress(OSError):
                if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    continue
                if target.startswith("udp") and not stream.recv(1):
                    continue
                found.add(target)
    for _, stream in waiting.values():
        stream.close()
    return [target for target in targets if target in found]


def cluster_targets() -> list[str]:
    """Return the cluster's API server and name servers, as a pod knows them."""
    targets = []
    if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
        targets.append(f"tcp:{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}")
    with suppress(OSError):
        lines = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace").split("\n")
        names = [line.split()[1] for line in lines if line.startswith("nameserver ")]
        targets += [f"{kind}:{name}:53" for name in names for kind in ("tcp", "udp")]
    return targets


def serve(port: int, seconds: float) -> None:
    """Accept connections, until there was none for some seconds: nobody needs the pod any more."""
    try:
        listener = socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128
        )
    except (OSError, ValueError):
        listener = socket.create_server(("", port), backlog=128)
    listener.settimeout(seconds)
    while True:
        try:
            listener.accept()[0].close()
        except TimeoutError:
            return
        except OSError:
            continue


def prove(seconds: float, targets: list[str]) -> list[str]:
    """Return an empty list if nothing was reached in several rounds, else what was."""
    until = time.monotonic() + seconds
    clean = 0
    while True:
        began = time.monotonic()
        found = try_targets(targets, _ROUND)
        clean = 0 if found else clean + 1
        # protection: policy-is-proven-more-than-once
        if clean == _ROUNDS or (found and time.monotonic() >= until):
            return found
        time.sleep(max(0.0, began + _ROUND - time.monotonic()))


def reach(seconds: float, target: str) -> list[str]:
    """Return the target once it was reached, or an empty list."""
    until = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if (found := try_targets([target], _ROUND)) or time.monotonic() >= until:
            return found
        time.sleep(max(0.0, began + _ROUND - time.monotonic()))


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "serve":
        serve(int(words[0]), float(words[1]))
        sys.exit()
    if verb == "look":
        words = [*cluster_targets(), *words]
        answer = {"targets": words, "reached": try_targets(words, 2.0)}
    elif verb == "reach":
        answer = {"reached": reach(float(words[0]), words[1])}
    else:
        answer = {"reached": prove(float(words[0]), words[1:])}
    sys.stdout.write(json.dumps(answer))
