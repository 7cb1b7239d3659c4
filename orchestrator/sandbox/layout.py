"""The container of a sandbox: its files, its user, its limits, what it may reach."""

from dataclasses import dataclass

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, Egress, TmpfsMount
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Part, Place, PlaceSpec, Step
from orchestrator.sandbox.home import Home
from orchestrator.sandbox.models import WORKSPACE, Template
from orchestrator.sandbox.network.shared_network import egress_for

STEP = "sandbox"
"""Name of the only step of a sandbox's place, and of the part with the workspace."""
HOME = "/home/sandbox"
CONTROL = "/run/sandbox"
"""Directory with files of ours that commands can only read."""

# protection: root-of-sandbox-has-few-capabilities
_OF_ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""Capabilities that package managers need, and the one to end the commands of other users."""


@dataclass(frozen=True)
class Maker:
    """What makes the sandboxes of one template on one engine."""

    template: Template
    engine: ContainerEngine
    egress: Egress | None = None
    """What the sandboxes may reach; None for nothing."""


def check(template: Template, engine: ContainerEngine) -> Maker:
    """Check that an engine can make sandboxes, and find out what they may reach.

    Raises:
        ImageNotFoundError: The engine lacks an image.
        EngineUnavailableError: The engine cannot be reached.
        ConfigError: A host of the allow-list is invalid or cannot be resolved.
        UnsupportedError: The engine lacks the runtime, or cannot close the network.
    """
    ours = () if template.network == "none" else (BASE_IMAGE,)
    features = engine.check(images=(template.image, *ours), runtime=template.runtime)
    egress = egress_for(
        template.network, template.allow, engine=engine, features=features, runtime=template.runtime
    )
    return Maker(template, engine, egress)


def place_of(home: Home, maker: Maker, *, spare_pids: int = 0) -> Place:
    """Return the place of a sandbox, in which nothing was created yet.

    Args:
        home: The directory of the sandbox.
        maker: What makes it.
        spare_pids: Processes in addition to those that the limit is for.
    """
    template = maker.template
    limits, seen_by = template.limits, frozenset({STEP})
    workspace = BindMount(source=home.workspace, target=WORKSPACE, read_only=False)
    control = BindMount(source=home.control, target=CONTROL, read_only=True)
    is_root = template.user == "root"
    parts = [Part(name="control", mount=control, seen_by=seen_by)]
    # protection: no-file-of-root-on-this-machine
    if not is_root:
        parts.append(Part(name=STEP, mount=workspace, seen_by=seen_by))
    spec = ContainerSpec(
        name=f"orchestrator-sandbox-{home.id}",
        image=template.image,
        command=(),
        user="0:0" if is_root else f"{home.user}:{home.group}",
        workdir=WORKSPACE,
        labels=home.labels,
        mounts=(
            TmpfsMount(target="/tmp", size=limits.tmp),  # noqa: S108  # the container's own
            TmpfsMount(target=HOME, size=limits.tmp, mode="700"),
        ),
        cpus=limits.cpus,
        memory=limits.memory,
        pids=limits.pids + spare_pids,
        open_files=limits.open_files,
        runtime=template.runtime,
        egress=maker.egress,
        read_only=template.root == "read-only",
        capabilities=_OF_ROOT if is_root else (),
    )
    return HostPlace(
        maker.engine,
        PlaceSpec(
            name=spec.name,
            labels=home.labels,
            parts=tuple(parts),
            steps=(Step(name=STEP, spec=spec),),
        ),
    )
