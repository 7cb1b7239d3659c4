"""The Job of a place: one pod, whose containers all exist from the start.

No text of a task, no variable and no secret is part of it: these come with the order, over the
channel, into memory. Every container of a step runs the shim and waits.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from orchestrator.base.errors import UnsupportedError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import PLACE, RUN
from orchestrator.engine.interface.spec import BindMount, TmpfsMount
from orchestrator.engine.kubernetes.losses import LOST_NODE, once
from orchestrator.engine.kubernetes.pod_network import NETWORK, names_by, network_of
from orchestrator.engine.places.place import Part, PlaceSpec, Step

PORTER, FILES = "porter", "files"
STATE = "/state"
"""Directory of the own files of the porter, and of the container with the files."""
CHANNELS, USAGE, PARTS = "/channels", "/usage", "/parts"
RUNS = 2
"""Containers per step: a step whose container was removed can run once more."""
SERVICE_ACCOUNT = "orchestrator-worker"
_CHANNEL = "/run/place"
PORTER_USER = 65_123
_LONGEST_NAME = 52
"""Longest name of a Job: those of its pods are longer, and are labels."""
_USERS = range(200_000, 2_000_000)
"""Users of steps. The kernel's limit on processes is about all of a user's on the node."""
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_SPARE = 300
_WEEK = 7 * 24 * 3600
_REMOVED_AFTER = 600
_CHANNEL_SIZE = 20 * 1024**2
_GRACE = 2
_BEGIN = f"""\
until [ -e {STATE}/begin ]; do sleep 0.1; done
exec python3 -I -S {STATE}/porter.py {STATE} "$0"
"""
_TOOLS = f"""\
set -e
umask 0
for step; do
  for run in $(seq {RUNS}); do
    mkdir -p {CHANNELS}/$step/$run
    cp -L /bin/sh {CHANNELS}/$step/$run/sh
    chmod 0111 {CHANNELS}/$step/$run/sh
  done
done
umask 022
cd {PARTS} || exit 0
for part in *; do
  if [ -e "$part/file" ] || [ -e "$part/files" ]; then continue; fi
  case " $0 " in
    *" $part "*) : > "$part/file" ;;
    *) mkdir "$part/files" ;;
  esac
done
"""
"""Lets the steps' user own the shell of the shim, which it can execute, and neither read nor
change: the steps see it on a read-only mount. So no step can trace the shim.
"""


@cache
def _shim() -> str:
    return (
        files("orchestrator.engine.places.in_place").joinpath("shim.sh").read_text(encoding="utf-8")
    )


def job_name(spec: PlaceSpec) -> str:
    """Return the name of a place's Job."""
    name = re.sub("[^a-z0-9-]", "-", spec.name.lower()).strip("-")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 13].strip('-')}-{_hash(spec.name)[:12]}"


def selectable(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as a cluster accepts them: values that it refuses become hashes."""
    return {
        key: value if _LABEL.fullmatch(value) else _hash(value) for key, value in labels.items()
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def container_name(step: str, run: int) -> str:
    """Return the name of the container for a run of a step."""
    return f"{step}-{run}"


def is_ordered(step: Step) -> bool:
    """Return whether a step begins with an order, unlike services, which begin with their pod."""
    # Of the steps that serve others, only the broker is ordered: its keys must be in no object.
    link = step.spec.link
    return not step.limits.serves or (link is not None and link.broker is None)


def user_of(spec: PlaceSpec) -> tuple[int, int]:
    """Return user and group of the steps, which own all files of the place.

    They are not those of the specification, but of this pod alone, so that the kernel limits its
    processes.

    Raises:
        UnsupportedError: The steps have several users, or the image's own.
    """
    users = {step.spec.user for step in spec.steps if is_ordered(step)}
    user = next(iter(users)).partition(":")[0]
    # protection: pods-never-run-as-root
    if len(users) != 1 or not user.isdecimal() or int(user) in (0, PORTER_USER):
        raise UnsupportedError(
            "all steps of a pod need the same user, other than root", key="place.root-step"
        )
    # protection: pod-has-user-of-its-own
    own = _USERS[int(_hash(job_name(spec)), 16) % len(_USERS)]
    return own, own


def most_processes(spec: PlaceSpec, step: Step) -> int:
    """Return how many processes the pod's user may have while a step runs.

    The other containers of this user have at least one process each: those of the steps, which
    wait, and the one with the files.
    """
    return step.spec.pids + RUNS * len(spec.steps)


def _lifetime(spec: PlaceSpec, settings: PodSettings) -> int | None:
    """Return after how many seconds the cluster ends a place; None if a step has no time limit."""
    if any(step.limits.timeout is None for step in spec.steps):
        return None
    longest = sum((step.limits.timeout or 0) + step.limits.grace for step in spec.steps)
    return int(spec.start_within + settings.start_within + longest + spec.collect_within + _SPARE)


def job(
    spec: PlaceSpec,
    single: frozenset[str],
    settings: PodSettings,
    version: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Return the Job of a place.

    Args:
        spec: The place.
        single: Names of the parts that are single files.
        settings: The user's settings of pods.
        version: Version of the cluster; (0, 0) has only what every cluster has.
    """
    base = settings.images.get(BASE_IMAGE, BASE_IMAGE)
    # protection: policy-selects-pods-of-workers
    labels = selectable({**spec.labels, PLACE: spec.name, NETWORK: network_of(spec)})
    lifetime = _lifetime(spec, settings)
    runtime = next((step.spec.runtime for step in spec.steps if step.spec.runtime), None)
    containers = [
        _helper(PORTER, base, "serve", (PORTER_USER, PORTER_USER), _porter_mounts(spec)),
        _helper(FILES, base, "watch", user_of(spec), _files_mounts(spec)),
        *(
            _step(spec, step, run, single, settings)
            for step in spec.steps
            for run in range(1, RUNS + 1)
        ),
    ]
    hardened = hardened_pod(containers, settings)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(spec),
            "labels": labels,
            "annotations": {**spec.labels, PLACE: spec.name},
        },
        "spec": {
            **once(version),
            "completions": 1,
            # Without a limit of time for a step, only the client ends it.
            **({} if lifetime is None else {"activeDeadlineSeconds": lifetime}),
            "ttlSecondsAfterFinished": _REMOVED_AFTER,
            "template": {
                "metadata": {"labels": labels, "annotations": {**spec.labels}},
                "spec": {
                    **hardened | ({"runtimeClassName": runtime} if runtime else {}),
                    "shareProcessNamespace": False,
                    "terminationGracePeriodSeconds": _GRACE,
                    **names_by(spec),
                    "tolerations": [*LOST_NODE, *hardened.get("tolerations", ())],
                    # The loss of one node then costs as few workers of a run as possible.
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": {RUN: labels.get(RUN, "")}},
                        }
                    ],
                    "initContainers": list(_tools(spec, single, settings.images)),
                    "volumes": list(_volumes(spec)),
                },
            },
        },
    }


def _tools(
    spec: PlaceSpec, single: frozenset[str], images: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the containers that prepare the volumes, one for each image."""
    user, group = user_of(spec)
    for number, image in enumerate(dict.fromkeys(step.spec.image for step in spec.steps)):
        steps = [step.name for step in spec.steps if step.spec.image == image]
        mounts = [_mount(f"{CHANNELS}/{step}", f"channel-{step}") for step in steps]
        mounts += [_mount(f"{PARTS}/{name}", f"part-{name}") for name in _names(spec)]
        yield {
            "name": f"tools-{number}",
            "image": images.get(image, image),
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", literal(_TOOLS), " ".join(sorted(single)), *steps],
            "securityContext": security(user, group),
            "resources": resources("10m", 32 * 1024**2, None, 64 * 1024**2),
            "volumeMounts": mounts,
        }


def _helper(
    name: str, image: str, verb: str, user: tuple[int, int], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", literal(_BEGIN), verb],
        "securityContext": security(*user),
        "resources": resources("50m", 64 * 1024**2, None, 512 * 1024**2),
        "volumeMounts": mounts,
    }


def _step(
    spec: PlaceSpec, step: Step, number: int, single: frozenset[str], settings: PodSettings
) -> dict[str, Any]:
    """Return the container of one run of a step."""
    described, at_step = step.spec, spec.steps.index(step)
    user, group = user_of(spec)
    mounts = [_mount(_CHANNEL, f"channel-{step.name}", read_only=True)]
    # protection: container-of-pod-mounts-only-its-parts
    mounts += [_part_mount(part, single) for part in spec.parts if step.name in part.seen_by]
    for at, tmpfs in enumerate(tmpfs_of(step)):
        mounts.append(_mount(tmpfs.target, f"memory-{at_step}-{at}"))
    millis = None if described.cpus is None else max(1, round(described.cpus * 1000))
    # Steps run one after the other, so the pod needs room for the largest only. A node can share
    # its CPUs, but not its memory.
    largest = max(spec.steps, key=lambda step: step.spec.memory)
    is_largest = step is largest and number == 1
    share = 100 if millis is None else max(1, millis // 4)
    asked = (f"{share}m", described.memory) if is_largest else ("1m", 1024**2)
    # protection: shim-limits-processes-and-open-files
    limits = [str(most_processes(spec, step)), str(described.open_files)]
    # A run can be ordered as long as the pod lives; the porter ends the waiting with its own life.
    waits = _lifetime(spec, settings) or _WEEK
    return {
        "name": container_name(step.name, number),
        "image": settings.images.get(described.image, described.image),
        "imagePullPolicy": "IfNotPresent",
        "workingDir": described.workdir,
        "command": [
            f"{_CHANNEL}/{number}/sh", "-c", literal(_shim()), "shim", f"{_CHANNEL}/{number}",
            str(waits), *limits,
        ],
        "securityContext": security(user, group),
        "resources": resources(*asked, None if millis is None else f"{millis}m", described.memory),
        "volumeMounts": mounts,
    }  # fmt: skip


def _part_mount(part: Part, single: frozenset[str]) -> dict[str, Any]:
    place = part.mount
    # protection: read-only-parts-of-pod
    mount = _mount(place.target, f"part-{part.name}", read_only=place.read_only)
    return {**mount, "subPath": "file" if part.name in single else "files"}


def _porter_mounts(spec: PlaceSpec) -> list[dict[str, Any]]:
    channels = [_mount(f"{CHANNELS}/{step.name}", f"channel-{step.name}") for step in spec.steps]
    return [_mount(STATE, "state"), _mount(USAGE, "usage"), *channels]


def _files_mounts(spec: PlaceSpec) -> list[dict[str, Any]]:
    parts = [_mount(f"{PARTS}/{name}", f"part-{name}") for name in _names(spec)]
    return [_mount(STATE, "own"), _mount(USAGE, "usage"), *parts]


def _mount(target: str, volume: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"name": volume, "mountPath": target, "readOnly": read_only}


def _names(spec: PlaceSpec) -> list[str]:
    return sorted({part.name for part in spec.parts})


def tmpfs_of(step: Step) -> list[TmpfsMount]:
    """Return the file systems in memory of a step's container."""
    return [mount for mount in step.spec.mounts if isinstance(mount, TmpfsMount)]


def _volumes(spec: PlaceSpec) -> Iterator[dict[str, Any]]:
    yield {"name": "state", "emptyDir": {}}
    yield {"name": "own", "emptyDir": {}}
    yield {"name": "usage", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    # protection: secret-parts-of-pod-are-in-memory
    memory = {part.name for part in spec.parts if part.in_memory}
    for name in _names(spec):
        yield {"name": f"part-{name}", "emptyDir": {"medium": "Memory"} if name in memory else {}}
    for number, step in enumerate(spec.steps):
        # protection: orders-are-in-memory
        channel = {"medium": "Memory", "sizeLimit": str(_CHANNEL_SIZE)}
        yield {"name": f"channel-{step.name}", "emptyDir": channel}
        for at, tmpfs in enumerate(tmpfs_of(step)):
            limited = {"medium": "Memory", "sizeLimit": str(tmpfs.size)}
            yield {"name": f"memory-{number}-{at}", "emptyDir": limited}


def hardened_pod(containers: Sequence[Mapping[str, Any]], settings: PodSettings) -> dict[str, Any]:
    """Return what the specification of every pod has, with its containers."""
    chosen = {
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "nodeSelector": settings.node_selector,
        "tolerations": [taint.toleration() for taint in settings.tolerations],
        "priorityClassName": settings.priority_class,
    }
    # protection: no-token-in-pods
    return {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [*containers],
        **{key: value for key, value in chosen.items() if value},
    }


def literal(text: str) -> str:
    """Return a text of a command in which a cluster replaces nothing."""
    return text.replace("$", "$$")


def security(user: int, group: int) -> dict[str, Any]:
    """Return the security context of a container."""
    # protection: containers-of-pods-are-hardened
    return {
        "runAsUser": user,
        "runAsGroup": group,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }


def resources(cpu: str, memory: int, most_cpu: str | None, most_memory: int) -> dict[str, Any]:
    """Return the requests and limits of a container."""
    limits = {"memory": str(most_memory), **({"cpu": most_cpu} if most_cpu else {})}
    return {"requests": {"cpu": cpu, "memory": str(memory)}, "limits": limits}


def check_pod(spec: PlaceSpec) -> None:
    """Check that a place needs nothing that pods do not have.

    Raises:
        UnsupportedError: It does.
    """
    if spec.steps:
        user_of(spec)
    names = [*_names(spec), *(step.name for step in spec.steps)]
    wrong = [name for name in names if not re.fullmatch("[a-z][a-z0-9-]{0,40}", name)]
    if wrong:
        raise UnsupportedError(f"a pod has no part or step `{wrong[0]}`", key="place.part-unknown")
    if not all(isinstance(part.mount, BindMount) for part in spec.parts):
        raise UnsupportedError("a pod has no overlays", key="place.no-overlays")
    for step in spec.steps:
        egress = step.spec.egress
        listed = egress is not None and (egress.hosts or egress.learn)
        own = step.spec.own_program and is_ordered(step)
        if own or listed:
            raise UnsupportedError(
                "pods have no allow-lists yet",
                key="place.step-unsupported",
                hint="use an engine of this machine",
            )
