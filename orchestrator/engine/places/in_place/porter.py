"""The porter of a place with volumes: it starts and stops the steps, and keeps their output.

`serve` runs as long as the place exists. The other commands are short: the engine starts them
beside it, as with `docker exec`, or one `talk`, which reads them from its standard input. What they
print has a length and a SHA-256. No step depends on the
client or its connection: the porter enforces the limits and starts the steps that follow. If the
porter ends, all steps are killed.
"""

import json
import math
import os
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.base.files.disk_usage import DiskUse, disk_use
from orchestrator.base.machine import uptime
from orchestrator.engine.places.in_place.archive import LARGEST_ORDER
from orchestrator.engine.places.in_place.channel import Channel, Step, exit_code, order_text
from orchestrator.engine.places.in_place.commands import perform, talk
from orchestrator.engine.places.in_place.incoming import Measurements, beat, keeps_forking, watch
from orchestrator.engine.places.in_place.records import Journal, Output, part_directory

FOLLOWS = "follows"
"""Nonce of an order that another one may replace until the step begins."""
ABANDONED = 3
"""Exit code of a porter that waited in vain for an order, or to be released."""
_MOST_FILES = 1_000_000
_MEASURE = 0.5
"""Seconds between two measurements of the files; longer if measuring takes long."""
_MEASURING = 10.0
_TICK = 0.5
_REAP = 2.0


class Porter:
    """Keeps one place; `serve` returns when the place is released or abandoned."""

    def __init__(self, root: str) -> None:
        """Create the channels and files of the place that `spec.json` describes."""
        spec = json.loads(Path(root, "spec.json").read_text())
        self._spec = spec
        self._journal = Journal(root)
        self._selector = selectors.DefaultSelector()
        self._steps: dict[str, Step] = {}
        self._runs = dict.fromkeys(spec["steps"], 1)
        """Numbers of the steps' runs; each needs a container of its own."""
        usage = spec.get("usage")
        self._measured = {name: Measurements(usage, name) for name in spec["steps"] if usage}
        os.makedirs(f"{root}/output", exist_ok=True)
        self._root = root
        for name in spec["steps"]:
            # protection: step-of-earlier-porter-never-runs-again
            if name in spec["started"] and self._begun(name).exists():
                self._restore(name)
            else:
                self._prepare(name, 1)
        Path(root, "socket").unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"{root}/socket")
        self._socket.listen()
        self._selector.register(self._socket, selectors.EVENT_READ, None)
        self._measuring = threading.Event()
        self._began, self._released = Path(root, "base.json").exists(), False
        self._idle_since = self._reaped = uptime()

    def _begun(self, name: str) -> Path:
        """Return the file that exists once a step's command may have run."""
        return Path(self._root, "output", f"{name}.begun")

    def _restore(self, name: str) -> None:
        """Keep a step that began under an earlier porter, with which all its processes died."""
        channel = Channel(os.path.join(self._spec["channels"], name))
        channel.close()
        files = {s: Output(self._root, f"{name}.{s}", is_over=True) for s in channel.output}
        last = self._journal.last.get(name, {})
        step = Step(name=name, channel=channel, files=files, **self._spec["steps"][name])
        step.state, step.exit_code, step.reason = "ended", last.get("exit_code"), last.get("reason")
        self._steps[name] = step
        if last.get("event") != "ended":
            self._journal.add("ended", name, reason=step.reason, exit_code=None)

    def _channel_of(self, name: str, run: int) -> str:
        """Return the directory of a step's channel: one per run if all containers exist at once."""
        folder = str(run) if "usage" in self._spec else ""
        return os.path.join(self._spec["channels"], name, folder)

    def _prepare(self, name: str, run: int) -> None:
        """Create a step that has not been ordered."""
        self._begun(name).unlink(missing_ok=True)
        channel = Channel(self._channel_of(name, run))
        files = {stream: Output(self._root, f"{name}.{stream}") for stream in channel.output}
        given = self._spec["steps"][name]
        step = self._steps[name] = Step(name=name, channel=channel, files=files, **given)
        self._selector.register(channel.say, selectors.EVENT_READ, (step, "say"))
        for stream, descriptor in channel.output.items():
            self._selector.register(descriptor, selectors.EVENT_READ, (step, stream))
        self._runs[name] = run

    def serve(self) -> int:
        """Keep the place until it is released, or nobody comes; return the exit code."""
        measuring = threading.Thread(target=self._measure, daemon=True)
        measuring.start()
        # Without measurements, the limits of disk and files would not be enforced.
        while not self._released and measuring.is_alive():
            beat(self._spec.get("usage"))
            for key, _ in self._selector.select(_TICK):
                if key.data is None:
                    self._answer()
                elif key.data[0].state == "ended":
                    continue  # ended by an earlier event of this turn
                elif key.data[1] == "say":
                    self._hear(key.data[0])
                else:
                    self._keep_output(*key.data)
            now = uptime()
            active = self._active()
            for step in active:
                self._watch(step, now)
            if now >= self._reaped + _REAP:
                self._reaped = now
                for step in active:
                    step.channel.send("reap")
            wait = self._spec["collect_within" if self._began else "start_within"]
            is_idle = all(step.killed or step.serves for step in active)
            if is_idle and now - self._idle_since > wait:
                return ABANDONED
        return 0 if self._released else 1

    def dismiss(self) -> None:
        """End the containers that wait for a run of a step, and the one with the files."""
        beat(self._spec.get("usage"), is_last=True)
        for channel in Path(self._spec["channels"]).glob("*/*/"):
            (channel / "over").touch()

    def _active(self) -> list[Step]:
        return [step for step in self._steps.values() if step.state in ("starting", "running")]

    def _answer(self) -> None:
        """Answer one request of a short command, which the client's engine started."""
        connection, _ = self._socket.accept()
        # A client that asks is there: a place whose only step serves is not abandoned.
        self._idle_since = uptime()
        with connection, suppress(OSError):
            connection.settimeout(10)
            try:
                with connection.makefile("rb") as sent:
                    answer = self._perform(json.loads(sent.readline(8 * LARGEST_ORDER)))
            except (ValueError, TypeError, KeyError, OSError) as error:
                answer = {"error": str(error)}
            connection.sendall(json.dumps(answer).encode() + b"\n")

    def _perform(self, request: object) -> dict[str, Any]:
        match request:
            case {"command": "state", "step": name}:
                return {"state": self._find(name).state, "run": self._runs[name]}
            case {"command": "order", "order": order}:
                self._order(**order)
            case {"command": "begin", "step": name}:
                self._begin_held(self._find(name))
            case {"command": "stop", "step": name, "signal": signal}:
                self._stop(self._find(name), signal)
            case {"command": "forget", "step": name, "run": run}:
                self._forget(self._find(name), run)
            case {"command": "release"}:
                self._released = True
            case _:
                raise ValueError("there is no such request")
        return {}

    def _order(self, step: str, nonce: str, *, hold: bool = False, **order: Any) -> None:  # noqa: ANN401
        ordered = self._find(step)
        order_text(**order)
        if not os.path.isdir(self._channel_of(step, self._runs[step])):
            raise ValueError(f"the place has no further container for the step {step!r}")
        is_open = ordered.nonce in (None, FOLLOWS) and ordered.state in ("waiting", "ordered")
        # protection: second-order-refused
        if ordered.nonce != nonce and not is_open:
            raise ValueError(f"the step {step!r} was ordered before")
        if ordered.nonce != nonce:
            ordered.nonce, ordered.order, ordered.state = nonce, order, "ordered"
            ordered.is_held = hold
            before = None if ordered.after is None else self._find(ordered.after).state
            # A client also orders steps of which the earlier one was never ordered, or was removed.
            is_due = before in (None, "ended") or (nonce != FOLLOWS and before == "waiting")
            if is_due and not hold:
                self._begin(ordered)

    def _begin_held(self, step: Step) -> None:
        """Let a step begin whose order was held; one that has begun is no error."""
        if step.state == "waiting":
            raise ValueError(f"the step {step.name!r} was not ordered completely; order it again")
        if step.is_held and step.state == "ordered":
            self._begin(step)

    def _forget(self, step: Step, run: int) -> None:
        """Let a step be ordered again after this run, of which the container was removed."""
        if run != self._runs[step.name]:
            return  # a repeated call, of which the answer was lost
        if step.state == "running":
            raise ValueError(f"the step {step.name!r} has not ended")
        is_idle = step.state == "waiting" or (step.is_held and step.state == "ordered")
        if not (is_idle and "usage" in self._spec):  # else its container still waits for a command
            if step.state != "ended":
                self._close(step)
            if step.state == "starting":
                self._journal.add("ended", step.name, reason=step.reason, exit_code=None)
            step.state = "ended"
            if os.path.isdir(self._channel_of(step.name, run + 1)):
                self._prepare(step.name, run + 1)
                return
            self._runs[step.name] = run + 1
        step.order, step.nonce, step.state = None, None, "waiting"

    def _find(self, name: str) -> Step:
        if name not in self._steps:
            raise ValueError(f"the place has no step {name!r}")
        return self._steps[name]

    def _begin(self, step: Step) -> None:
        if not self._began:
            self._began = True
            Path(self._root, "base.json").write_text(json.dumps(time.time()))
        step.base = step.use = self._look(step)
        with self._begun(step.name).open("wb") as begun:
            os.fsync(begun.fileno())
        # The client starts the step's container now, or has done so.
        step.state, step.until = "starting", uptime() + self._spec["start_within"]
        step.channel.go(**step.order or {})
        step.order = None
        self._measuring.set()

    def _stop(self, step: Step, signal: str) -> None:
        if step.state not in ("starting", "running"):
            return
        if signal == "SIGKILL":
            # A step that the kernel cannot end does not keep the place: steps after it never run.
            step.killed, step.until, self._idle_since = True, math.inf, uptime()
            step.channel.kill()
        else:
            step.channel.send("TERM")
        self._journal.add("stopping", step.name, reason=step.reason)

    def _hear(self, step: Step) -> None:
        lines, is_over = step.channel.hear()
        for line in lines:
            if line == b"began" and step.state == "starting":
                step.state = "running"
                step.until = math.inf if step.timeout is None else uptime() + step.timeout
                # protection: order-is-removed-when-command-began
                step.channel.forget_order()
                self._journal.add("started", step.name)
            code = exit_code(line)
            if code is not None and step.state == "running" and step.exit_code is None:
                step.exit_code = code
                step.channel.send(f"exit {code}")
                step.channel.kill()
        if is_over:
            # Nobody is left who could report the command's end.
            self._selector.unregister(step.channel.say)
            step.channel.kill()

    def _keep_output(self, step: Step, stream: str) -> None:
        data = step.channel.read(stream)
        if data:
            written = sum(file.size for file in step.files.values())
            room = len(data) if step.output is None else max(0, step.output - written)
            # protection: output-of-step-is-bounded
            step.files[stream].write(data[:room])
            if len(data) > room and not step.serves and step.reason is None:
                self._stop_for(step, "output", uptime())
        elif data is not None:
            self._selector.unregister(step.channel.output[stream])
            step.files[stream].is_complete = True
            if all(file.is_complete for file in step.files.values()):
                self._end(step)

    def _end(self, step: Step) -> None:
        """Record a step's end, of which the end of its output is the proof."""
        if step.channel.say in self._selector.get_map():
            self._hear(step)
        self._close(step)
        step.state, self._idle_since = "ended", uptime()
        code = 137 if step.killed and step.exit_code is None else step.exit_code
        self._journal.add("ended", step.name, reason=step.reason, exit_code=code)
        for following in self._steps.values():
            if following.after == step.name and following.order and not following.is_held:
                self._begin(following)
        if not self._active():
            self._measuring.clear()

    def _close(self, step: Step) -> None:
        for descriptor in (step.channel.say, *step.channel.output.values()):
            with suppress(KeyError):
                self._selector.unregister(descriptor)
        step.channel.forget_order()
        step.channel.close()
        for file in step.files.values():
            file.complete()

    def _watch(self, step: Step, now: float) -> None:
        """Stop a step at its limits."""
        written = step.use.size - step.base.size
        files, usage = step.use.files - step.base.files, self._spec.get("usage")
        if now >= step.until and step.state == "starting":
            # No shim came, so there is no end of output.
            self._end(step)
        # protection: step-is-killed-after-its-grace
        elif now >= step.until and step.reason is not None:
            self._stop(step, "SIGKILL")
        # protection: step-is-stopped-at-its-deadline
        elif now >= step.until:
            self._stop_for(step, "timeout", now)
        # protection: step-is-stopped-at-its-disk-limit
        elif step.reason is None and step.disk is not None and written > step.disk:
            self._stop_for(step, "disk", now)
        # protection: step-is-stopped-at-its-limit-of-files
        elif step.reason is None and step.inodes is not None and files > step.inodes:
            self._stop_for(step, "inodes", now)
        # protection: fork-bomb-of-pod-is-stopped
        elif step.reason is None and usage and keeps_forking(Path(usage), step.name):
            self._stop_for(step, "pids", now)

    def _stop_for(self, step: Step, reason: str, now: float) -> None:
        step.reason, step.until = reason, now + step.grace
        self._stop(step, "SIGTERM")

    def _look(self, step: Step) -> DiskUse:
        if step.name in self._measured:
            return self._measured[step.name].last()
        roots = [part_directory(self._root, part) for part in step.limited]
        return disk_use(roots, most_files=_MOST_FILES, seconds=_MEASURING)

    def _measure(self) -> None:
        while True:
            self._measuring.wait()
            begun = time.monotonic()
            for step in self._active():
                step.use = self._look(step)
            time.sleep(max(_MEASURE, 2 * (time.monotonic() - begun)))


def main(root: str, command: str, *arguments: str) -> None:
    """Serve a place, or perform short commands in it, and print the answers.

    Args:
        root: Directory of the porter's own files.
        command: `serve`, `watch`, `talk`, `shell`, `order`, `begin`, `state`, `stop`, `forget`,
            `release`, `read`, `journal`, `usage`, `changed`, `pack`, `settle`, `append`, `unpack`
            or `measure`.
        arguments: Arguments of the command.
    """
    if command == "serve":
        porter = Porter(root)
        try:
            sys.exit(porter.serve())
        finally:
            porter.dismiss()
    if command in ("watch", "talk"):
        (watch if command == "watch" else talk)(root)
        return
    sys.exit(perform(root, command, *arguments))
