"""Protections of workers in pods of a cluster, which need no cluster to be noticed."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Always, Give, Instead, Never, Remove, Replace, Without

POD = "tests/engine/kubernetes/test_pod.py"
CHANNEL = "tests/engine/kubernetes/test_channel.py"
WAY = "tests/engine/kubernetes/test_way_to_pods.py"
TALK = "tests/engine/in_place/test_talk.py"
LOST = "tests/engine/kubernetes/test_lost_pods.py"
ATTEMPTS = "tests/worker/test_attempts.py"
NAMES = "tests/config/test_cluster.py"
REFUSALS = "tests/engine/kubernetes/test_refusals.py"
MANIFEST = "tests/engine/kubernetes/test_manifest.py"
PROOF = "tests/engine/kubernetes/test_network_proof.py"
ENFORCEMENT = "tests/runs/test_enforcement.py"
STEPS = "tests/engine/in_place/test_steps.py"
SERVICES = "tests/engine/kubernetes/test_services.py"
FORWARD = "tests/engine/kubernetes/test_port_forward.py"
INCOMING = "tests/engine/in_place/test_incoming.py"
BROKER = "tests/sandbox/test_broker.py"


def pods() -> Iterator[Protection]:
    """Return the protections of pods and of their files."""
    yield from marked(
        (INCOMING,),
        ("files arrive unaltered in pod", Never()),
        ("mounts in parts of pod stay", Never()),
        ("no pod without measurements", Never()),
        ("files of pod cannot be hidden", Never()),
    )
    yield from marked(
        (LOST,),
        ("only the pod that was fed counts", Never()),
        ("evicted pod is never a success", Never()),
        ("pod that is taken away is never a success", Never()),
        ("replaced pods run nothing", Never()),
        ("end without exit code is no success", Never()),
        ("exit code is that of clusters record", Instead("0")),
        ("no task after its deadline", Never()),
    )
    yield from marked(
        (WAY,),
        ("credentials follow no redirect", Without("redirect_limit")),
        ("failure is never exit code 0", Always()),
        ("commands of users run once", Instead("isinstance(error, EngineUnavailableError)")),
    )
    yield from marked(
        (f"{STEPS}::test_step_that_keeps_forking_is_stopped",),
        ("fork bomb of a pod is stopped", Never()),
    )
    yield from marked(
        (POD,),
        ("shim limits processes and open files", Instead("[]")),
        ("pod has a user of its own", Instead("200_000")),
        ("entered commands are limited", Instead("command")),
    )
    yield from marked((NAMES,), ("registry has host", Never()))
    yield from marked((TALK,), ("commands that nobody hears end", Never()))
    yield from marked((ATTEMPTS,), ("lost attempt is made again once", Never()))
    yield from marked((CHANNEL,), ("frames of a pod are bounded", Never()))
    yield from marked(
        (REFUSALS,),
        ("network of pods is not claimed", Give("'network': 'kernel'")),
        ("images that were not pushed are refused", Never()),
        ("engine without networks refuses what needs one", Never()),
        ("service without known port refused", Never()),
        ("steps of one place have one network", Never()),
        ("private addresses cannot be opened by a policy", Never()),
    )
    yield from marked(
        (MANIFEST,),
        (
            "closed networks are closed to open pods",
            Replace("(*CLOSED, *map(str, own))", "map(str, own)"),
        ),
    )
    yield from marked(
        (SERVICES,),
        ("services of pods are not root if the namespace forbids it",
         Give("'runAsNonRoot': False")),
        ("root file systems of services in pods are read-only",
         Give("'readOnlyRootFilesystem': False")),
        ("no new privileges for services in pods", Give("'allowPrivilegeEscalation': True")),
        ("services in pods are not privileged", Give("'privileged': True")),
        ("capabilities of services in pods are dropped", Give("'capabilities': {}")),
        at="services-of-pods-are-hardened",
    )  # fmt: skip
    yield from marked(
        (SERVICES,),
        ("services of pods are limited", Give("'resources': {}")),
        ("log of service is bounded", Never()),
    )
    yield from marked(
        (FORWARD,),
        ("ports are for this machine only", Replace("'127.0.0.1'", "'0.0.0.0'")),
        ("connections to pod are bounded", Replace("_MOST_CONNECTIONS", "1000")),
    )
    yield from marked(
        (POD,),
        ("workers are in no namespace by default", Never()),
        ("pods never run as root", Never()),
        ("no token in pods", Give("'automountServiceAccountToken': True")),
        ("container of pod mounts only its parts", Without("step.name in part.seen_by")),
        ("read only parts of pod", Give("read_only=False")),
        ("secret parts of pod are in memory", Instead("set()")),
        ("orders are in memory", Without("medium")),
    )
    yield from marked(
        (PROOF,),
        ("policy is proven more than once", Replace("_ROUNDS", "1")),
        ("no step before its pod proved the policy", Never()),
        ("unreachable canary proves nothing", Never()),
        ("first order waits for proof", Never()),
        (
            "open pods may reach name servers only",
            Replace("not target.endswith(_NAME_SERVER)", "0"),
        ),
    )
    yield from marked((ENFORCEMENT,), ("network counts as enforced if proven", Instead("'kernel'")))
    yield from marked(
        (POD,),
        ("policy selects pods of workers", Without("NETWORK")),
        ("pod is open only for open steps", Instead("'open'")),
        ("steps have the network of their pod", Never()),
        ("only the pod of the broker has its network", Never()),
    )
    yield from marked((REFUSALS,), ("pods of workers prove the policy", Instead("None")))
    yield from marked(
        (BROKER,),
        ("grant is for address of workers place", Instead("'10.0.0.9'")),
        ("earlier address of worker is withdrawn", Remove()),
    )
    yield from marked(
        (POD,),
        ("containers of pods are not root", Give("'runAsNonRoot': False")),
        ("root file systems of pods are read-only", Give("'readOnlyRootFilesystem': False")),
        ("no new privileges in pods", Give("'allowPrivilegeEscalation': True")),
        ("containers of pods are not privileged", Give("'privileged': True")),
        ("capabilities of pods are dropped", Give("'capabilities': {}")),
        at="containers-of-pods-are-hardened",
    )
