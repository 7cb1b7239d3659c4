"""Protections that isolate a container and its network."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

ISOLATION = "tests/engine/docker/test_isolation.py"
RULES = "tests/engine/docker/test_rules.py"
FLAGS = "tests/engine/docker/test_flags.py"
CONTRACT = "tests/engine/test_contract.py"
NETWORK = "tests/system/test_network.py"
HOST = "tests/engine/docker/test_firewall.py"
GATEWAY = "tests/system/test_gateway.py"
GATEWAY_CONTAINER = "tests/engine/docker/test_gateway.py"
CONFIGURATIONS = "tests/gateway/test_configurations.py"
HOSTS = "tests/gateway/test_hosts.py"
PROJECT_IMAGES = "tests/system/test_project_images.py"
SERVICES = "tests/worker/test_services.py"
_NETWORKS = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
)  # fmt: skip


def container() -> Iterator[Protection]:
    """Return the security options of a container."""
    yield from patches(
        "engine/docker/arguments.py",
        (FLAGS, ISOLATION, CONTRACT),
        ("capabilities dropped", 'cap_drop=["ALL"]', "cap_drop=[]"),
        ("no new privileges", '["no-new-privileges", *filtered]', "[*filtered]"),
        ("a seccomp profile of our own", '["no-new-privileges", *filtered]',
         '["no-new-privileges"]'),
        ("root read-only", "read_only=True,\n        ipc", "read_only=False,\n        ipc"),
        ("init", "init=True", "init=False"),
        ("user", '"user": spec.user', '"user": ""'),
        ("network as asked for", "network_mode=spec.network", 'network_mode="bridge"'),
        ("runtime as asked for", "runtime=spec.runtime", "runtime=None"),
        ("memory limit", "mem_limit=spec.memory,\n        memswap_limit=spec.memory,", ""),
        ("no swap beyond memory", "memswap_limit=spec.memory", "memswap_limit=None"),
        ("process limit", "pids_limit=spec.pids", "pids_limit=None"),
        ("CPU limit", "nano_cpus=int(spec.cpus * 1e9) if spec.cpus else None", "nano_cpus=None"),
        ("open files limit",
         'Ulimit(name="nofile", soft=spec.open_files, hard=spec.open_files),', ""),
        ("no core dumps", 'Ulimit(name="core", soft=0, hard=0),', ""),
        ("private IPC", 'ipc_mode="private"', 'ipc_mode="shareable"'),
        ("the daemon keeps no output", 'LogConfig(type="none")', 'LogConfig(type="json-file")'),
        ("tmpfs size", "size={mount.size},", ""),
        ("tmpfs inodes", "nr_inodes={mount.inodes},", ""),
        ("tmpfs nosuid", "nosuid,", ""),
        ("tmpfs nodev", "nodev,", ""),
        ("tmpfs mode", "mode={mount.mode}{owner}", "{owner[1:]}"),
        ("ports on 127.0.0.1 alone", '("127.0.0.1", host)', '("0.0.0.0", host)'),
        ("no entrypoint of the image's", "None if spec.own_program else []", "None"),
        ("no health check of the image's", '"healthcheck": {"test": ["NONE"]},', ""),
        ("labels of its overlay", "no_copy=True, labels=dict(labels)", "no_copy=True, labels={}"),
        ("read-only mounts", "read_only=mount.read_only", "read_only=False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/container.py",
        (FLAGS, ISOLATION, CONTRACT),
        ("anonymous volumes removed", "v=True, force=True", "v=False, force=True"),
        ("removed while it runs", "v=True, force=True", "v=True, force=False"),
        ("paused containers can be stopped", 'if state["Paused"]:', "if False:"),
    )  # fmt: skip


def engine() -> Iterator[Protection]:
    """Return the protections that the engine adds."""
    yield from patches(
        "engine/docker/engine.py", (FLAGS, ISOLATION, CONTRACT),
        ("volumes of the image in memory",
         "mounts=(*spec.mounts, *tmpfs)", "mounts=spec.mounts"),
        ("workers of a network apart",
         'options={"com.docker.network.bridge.enable_icc": "false"},', ""),
    )  # fmt: skip
    yield from patches(
        "engine/docker/support.py", ("tests/engine/docker/test_support.py",),
        ("Podman refused by name",
         'if any(name.startswith("Podman") for name in names):', "if False:"),
        ("an engine elsewhere refused",
         'if not base_url.startswith("http+docker://"):', "if False:"),
        ("a rootless engine refused", 'if any("rootless" in option', 'if any("no such" in option'),
    )  # fmt: skip


def guard() -> Iterator[Protection]:
    """Return the protections of a network, and of the container that sets its firewall."""
    yield from patches(
        "engine/docker/rules.py", (RULES, HOST, NETWORK),
        *((f"{network} closed", f'"{network}"', '"192.175.48.0/24"') for network in _NETWORKS),
        ("own addresses closed", "(*CLOSED, *own_addresses())", "CLOSED"),
        ("IPv6 closed", '"meta nfproto ipv6 reject",', ""),
        ("name servers at their port alone", " {way} dport 53 accept", " accept"),
        ("flows of a worker counted", 'f"ct state new ct count over {MOST_FLOWS} drop",', ""),
        ("flows inside of a container are not tracked", "{RESOLVER} notrack'",
         "{RESOLVER} accept'"),
        ("flows inside by IPv6 are not tracked", "nfproto ipv6 notrack'", "nfproto ipv6 accept'"),
        ("flows to the resolver counted",
         """        f'oifname "lo" ct state new ct count over {LOCAL_FLOWS} drop',\n""", ""),
        ("questions for names slowed down", """        f"ip daddr {RESOLVER} limit rate over \
{QUESTIONS}/second burst {BURST} packets drop",
""", ""),
        ("new flows of a worker slowed down", """        f"ct state new limit rate over \
{NEW_FLOWS}/second burst {BURST} packets drop",
""", ""),
        ("host closed from its own side", "local, broadcast", "broadcast"),
        ("host's rules go with their maker", '"flags owner;"', '""'),
    )  # fmt: skip
    yield from patches(
        "engine/docker/firewall.py", (RULES, FLAGS, NETWORK, HOST),
        ("no run goes on with host rules that do not stand", "    if problem is not None:\n"
         "        holder.remove()\n        raise EngineError(problem)\n", ""),
        ("rules stand before the worker starts", "        await_ready(guard)\n", ""),
        ("no start without rules", "nft -f - && echo", "nft -f - ; echo"),
        ("guard has one capability", '"capabilities": ("NET_ADMIN",)',
         '"capabilities": ("NET_ADMIN", "SYS_ADMIN")'),
        ("host's helper has one capability", """capabilities=("NET_ADMIN",),
        workdir="/",
        labels=labels""", """capabilities=("NET_ADMIN", "SYS_ADMIN"),
        workdir="/",
        labels=labels"""),
        ("guard sees no files", '        "mounts": (),\n', ""),
        ("guard knows no variables", 'env={"RULES": guard', 'env={**spec.env, "RULES": guard'),
        ("guard's memory", "_MEMORY = 64 * 1024**2", "_MEMORY = 96 * 1024**2"),
        ("guard's processes", "_PIDS = 16", "_PIDS = 17"),
    )  # fmt: skip
    yield from _gateway()
    yield from patches(
        "runs/shared_resources.py",
        ("tests/runs/test_repositories.py",),
        ("host closed to a run's network", "    return replace(_with_host_closed(run, name, \
network), network=network)", "    return replace(run, network=network)"),
    )  # fmt: skip
    yield from patches(
        "engine/egress.py", (RULES, "tests/system/test_oci_runtime.py"),
        ("base URLs of the agent program alone", "for name in names if",
         "for name in environment if"),
        ("a base URL opens a web port", "_PORTS.get(parts.scheme, 0)", "5432"),
        ("no runtime whose network stays open",
         "return runtime is None or runtime in _FILTERED", "return True"),
    )  # fmt: skip


def _gateway() -> Iterator[Protection]:
    """Return the protections that confine a worker to the hosts of its allow-list."""
    yield from patches(
        "gateway/filters.py", (CONFIGURATIONS, GATEWAY),
        ("worker sends to its gateway alone",
         '_chain("output", "output", "filter", "drop", out)',
         '_chain("output", "output", "filter", "accept", out)'),
        ("engine's name server closed to a confined worker",
         '        f"ip daddr 127.0.0.11 {_REFUSE}",\n', ""),
        ("gateway forwards nothing", '"forward", "forward", "filter", "drop"',
         '"forward", "forward", "filter", "accept"'),
        ("gateway serves its worker alone", 'here = f"ip saddr {plan.worker} ip daddr',
         'here = f"ip daddr'),
        ("gateway refuses addresses from elsewhere",
         '        "fib saddr . iif oif missing drop",\n', ""),
        ("gateway reaches no special network",
         '        f"ip daddr {_set(plan.not_public)} {_REFUSE}",\n', ""),
        ("no entry opens the machine's own addresses",
         '    yield f"ip daddr {_set(plan.unreachable)} {_REFUSE}"\n', ""),
        ("gateway connects to listed ports alone",
         '        f"tcp dport {_set(plan.ports)} accept",', '        "meta l4proto tcp accept",'),
        ("gateway's two programs alone connect",
         '        f"meta skuid != {PROGRAM} {_REFUSE}",\n', ""),
    )  # fmt: skip
    yield from patches(
        "gateway/proxy.py", (CONFIGURATIONS, GATEWAY),
        ("name checked before it is resolved",
         '    yield f"set-var({why}) str(name) unless {{ var({ok}) -m bool }}"\n', ""),
        ("address checked before it is used",
         "for part in _parts(plan.not_public):", "for part in _parts(()):"),
    )  # fmt: skip
    yield from patches(
        "gateway/names.py", (CONFIGURATIONS, GATEWAY),
        ("names of no list do not exist", '        "local=/#/",\n', ""),
        ("no name is passed on", '        "no-resolv",\n', ""),
    )  # fmt: skip
    yield from patches(
        "gateway/hosts.py", (HOSTS,),
        ("no address is a name", r'({_LABEL}\.)+[a-z]', r'({_LABEL}\.)+[a-z0-9]'),
        ("a wildcard has a domain", r'({_LABEL}\.)+[a-z]', r'({_LABEL}\.)*[a-z]'),
        ("no entry opens loopback", '"127.0.0.0/8", ', ""),
        ("no entry opens metadata services", '"169.254.0.0/16", ', ""),
        ("no entry takes the port of the name server", "int(text) == _NAME_SERVER", "False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/gateway.py", (GATEWAY_CONTAINER, GATEWAY),
        ("worker's network is internal", "internal=True", "internal=False"),
        ("machine has no address in it", '"true"}', '"false"}'),
        ("programs without capabilities", "--bounding-set=-all", ""),
        ("four capabilities", '"SETPCAP", "SETUID")', '"SETPCAP", "SETUID", "SYS_ADMIN")'),
        ("gateway ends with its name server", "wait -n -p ended || true", "wait"),
        ("gateway's memory", "_GATEWAY_MEMORY = 128 *", "_GATEWAY_MEMORY = 256 *"),
    )  # fmt: skip
    yield from patches(
        "runs/preflight.py", ("tests/runs/test_preflight.py",),
        ("no engine that ignores a list",
         "            of_task.attempt(check_gateways, settings.egress, features.value)\n", ""),
    )  # fmt: skip


def images() -> Iterator[Protection]:
    """Return the protections of the user's files from images, and of the machine from images."""
    yield from patches(
        "workspace/untracked.py", (PROJECT_IMAGES,),
        ("git's directory in no image", 'name == ".git" or is_a_workers(Path(place, name))',
         "is_a_workers(Path(place, name))"),
        ("workers' worktrees in no image", 'name == ".git" or is_a_workers(Path(place, name))',
         'name == ".git"'),
        ("no secret of a checkout in an image", "(is_secret(path) or _is_log(path))",
         "_is_log(path)"),
        ("no log of a checkout in an image", "(is_secret(path) or _is_log(path))",
         "is_secret(path)"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/images.py", (PROJECT_IMAGES,),
        ("no stage left without a name", "                steps.remove(self._client)",
         "                pass"),
        ("no old image left without a name",
         "            remove_unnamed(self._client, before.id, parents=True)", "            pass"),
    )  # fmt: skip


def services() -> Iterator[Protection]:
    """Return the protections that isolate a worker's services."""
    yield from patches(
        "worker/services.py", (SERVICES,),
        ("five capabilities", '"SETGID", "SETUID")', '"SETGID", "SETUID", "NET_ADMIN")'),
        ("network of the worker's", '"none" if self._egress is None else worker.run.network',
         "worker.run.network"),
        ("rules of the worker's", "worker.settings.egress.get(worker.settings.access.task)",
         "None"),
        ("out of reach from another network",
         "self._holder is None or (spec.network, spec.egress) != (self._network, self._egress)",
         "self._holder is None"),
        ("memory of its own", "memory=service.memory,", ""),
        ("CPUs of its own", "cpus=service.cpus,", ""),
        ("log bounded", "limit=_LOG", "limit=10**9"),
    )  # fmt: skip
