"""The program, whose pods wait for their client only for some seconds.

Usage: `python -m tests.cluster.hasty_run COLLECT_WITHIN REMOVED_AFTER ARGUMENTS…`
"""

import sys
from dataclasses import replace
from typing import Any

from orchestrator.engine.kubernetes import pod, pod_place
from orchestrator.engine.places.place import PlaceSpec
from orchestrator.faces.cli.app import run

if __name__ == "__main__":
    collect_within, removed_after, *arguments = sys.argv[1:]
    real = pod_place.PodPlace.__init__

    def make(self: Any, cluster: Any, spec: PlaceSpec, **rest: Any) -> None:
        real(self, cluster, replace(spec, collect_within=float(collect_within)), **rest)

    pod_place.PodPlace.__init__ = make  # type: ignore[method-assign]
    pod._REMOVED_AFTER = int(removed_after)
    sys.exit(run(arguments))
