"""An engine whose container gives a chosen answer when the limits of containers are tested."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import ROLE, RUN
from orchestrator.engine.interface.spec import ContainerSpec
from tests.support.local_engine import LocalContainer, LocalEngine

_ENFORCED = (
    *("memory", "swap", "cpus", "pids", "open_files", "tmp", "tmp_inodes", "read_only_root"),
    *("no_new_privileges", "capabilities", "seccomp", "network"),
)
SOUND: dict[str, Any] = {**dict.fromkeys(_ENFORCED, True), "kernel": "6.1", "boot": "b"}


def answer(**rest: Any) -> str:
    """Return the answer of an engine that enforces everything, apart from `rest`."""
    return json.dumps({**SOUND, **rest})


class AnsweringEngine(LocalEngine):
    """Answers with a text, and counts how often it was asked."""

    def __init__(self, scratch: Path, text: str = answer(), **features: Any) -> None:
        super().__init__(scratch)
        self.text, self.asked = text, list[ContainerSpec]()
        self.features = {"enforced": {}, "id": "THE:ID", "fingerprint": "f", **features}

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        return replace(super().check(images=images, runtime=runtime), **self.features)

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if spec.labels[ROLE] == "probe" and spec.labels[RUN].startswith("limits-"):
            self.asked.append(spec)
            spec = replace(spec, command=("printf", "%s", self.text), mounts=())
        return super().create(spec)
