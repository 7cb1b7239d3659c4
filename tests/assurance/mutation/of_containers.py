"""Protections that isolate a container and its network."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Both,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Without,
)

ISOLATION = "tests/engine/docker/test_isolation.py"
RULES = "tests/engine/docker/test_rules.py"
FLAGS = "tests/engine/docker/test_flags.py"
ADDITIONS = "tests/engine/docker/test_additions.py"
CONTRACT = "tests/engine/test_contract.py"
NETWORK = "tests/system/test_network.py"
HOST = "tests/engine/docker/test_firewall.py"
FILTER = "tests/engine/docker/test_network_filter.py"
GATEWAY = "tests/system/test_gateway.py"
GATEWAY_CONTAINER = "tests/engine/docker/test_gateway.py"
NAMES = "tests/system/test_gateway_names.py"
CONFIGURATIONS = "tests/network/gateway/test_configurations.py"
HOSTS = "tests/network/gateway/test_hosts.py"
PROJECT_IMAGES = "tests/system/test_project_images.py"
ARCHIVE = "tests/engine/images/test_archive.py"
UNINSTALL = "tests/runs/cleanup/test_uninstall.py"
SECCOMP = "tests/engine/docker/test_seccomp.py"
SERVICES = "tests/worker/test_services.py"
_NETWORKS = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
)  # fmt: skip


def container() -> Iterator[Protection]:
    """Return the security options of a container."""
    yield from marked(
        (SECCOMP,),
        ("custom seccomp profile", Without("*filtered", at="container-isolation")),
    )  # fmt: skip
    yield from marked(
        (FLAGS, ADDITIONS, ISOLATION, CONTRACT),
        ("capabilities dropped", Give("cap_drop=[]", at="container-isolation")),
        ("no new privileges", Give("security_opt=[*filtered]", at="container-isolation")),
        ("root file system read-only", Give("read_only=False", at="container-isolation")),
        ("init process reaps orphans", Give("init=False", at="container-isolation")),
        ("unprivileged user", Give("'user': '' or None", at="settings-of-image-do-not-apply")),
        ("requested network is used", Give("network_mode='bridge'", at="container-isolation")),
        ("requested runtime is used", Give("runtime=None", at="container-isolation")),
        ("memory limit",
         Both(Without("mem_limit"), Without("memswap_limit"), at="container-isolation")),
        ("no swap beyond memory", Give("memswap_limit=None", at="container-isolation")),
        ("process limit", Give("pids_limit=None", at="container-isolation")),
        ("CPU limit", Give("nano_cpus=None", at="container-isolation")),
        ("open files limit",
         Give("ulimits=[Ulimit(name='core', soft=0, hard=0)]", at="container-isolation")),
        ("no core dumps", Without("Ulimit(name='core', soft=0, hard=0)", at="container-isolation")),
        ("private IPC namespace", Give("ipc_mode='shareable'", at="container-isolation")),
        ("daemon stores no output", Give("type='json-file'")),
        ("tmpfs size", Text("size={mount.size}{inodes},", "{inodes[1:]},", at="tmpfs-options")),
        ("tmpfs inodes", Text("{inodes}", at="tmpfs-options")),
        ("tmpfs nosuid", Text("nosuid,", at="tmpfs-options")),
        ("tmpfs nodev", Text("nodev,", at="tmpfs-options")),
        ("tmpfs mode", Text("mode={mode}{owner}", "{owner[1:]}", at="tmpfs-options")),
        ("ports published on 127.0.0.1 only",
         Give("port_bindings={inside: ('0.0.0.0', host) for inside, host in spec.ports.items()}",
              at="container-isolation")),
        ("image's entrypoint is not run",
         Give("'entrypoint': None", at="settings-of-image-do-not-apply")),
        ("image's health check is not run",
         Without("healthcheck", at="settings-of-image-do-not-apply")),
        ("proxies of the user's Docker configuration stay outside",
         Without("use_config_proxy", at="settings-of-image-do-not-apply")),
        ("name servers of the machine are unknown without a network",
         Give("dns=None", at="container-isolation")),
        ("private cgroup namespace", Without("cgroupns", at="container-isolation")),
        ("overlay volumes are labelled", Give("labels={}")),
        ("read-only mounts", Give("read_only=False")),
    )  # fmt: skip
    yield from marked(
        (FLAGS, ISOLATION, CONTRACT),
        ("anonymous volumes removed", Give("v=False")),
        ("running containers can be removed", Give("force=False")),
        ("paused containers can be stopped", Never()),
    )  # fmt: skip


def places() -> Iterator[Protection]:
    """Return the protections of places with volumes, and of the programs in them."""
    yield from marked(
        ("tests/engine/in_place/test_archive.py",),
        ("archive of a part is bounded", Never()),
        ("special files of a part left out", Always()),
        ("archive has few entries", Never()),
        ("archive has small files", Never()),
        ("archive has short names", Never()),
        ("archive has only files and directories", Never()),
        ("archive stays below its directory", Instead("False")),
    )
    yield from marked(
        ("tests/engine/in_place/test_steps.py",),
        ("step cannot talk instead of the porter", Give("'obey': 0o666")),
        ("words of a step are bounded", Never()),
        ("second order refused", Never()),
        ("order is removed when the command began", Remove()),
        ("output of a step is bounded", Replace("data[:room]", "data")),
        ("step is killed after its grace", Never()),
        ("step is stopped at its deadline", Never()),
        ("step is stopped at its disk limit", Never()),
        ("step is stopped at its limit of files", Never()),
    )
    yield from marked(
        ("tests/engine/test_place_contract.py",),
        ("no step traces its shim", Instead("0o755")),
        ("step of an earlier porter never runs again", Never()),
        ("step without its order is ordered again", Never()),
        ("place without its files is not opened", Never()),
        ("step sees only its parts", Never()),
        ("read-only parts of a place", Give("read_only=False")),
        ("secret parts are in memory", Give("memory=None")),
        ("order is in no object of the engine", Give("env=start.env")),
        ("steps in volumes never run as root", Never()),
        ("volumes of a place are labelled", Give("labels={}")),
    )


def engine() -> Iterator[Protection]:
    """Return the protections that the engine adds."""
    yield from marked(
        (FLAGS, ADDITIONS),
        ("image's volumes are in memory", Give("mounts=spec.mounts")),
        ("no volume of an image hides files of a worker", Never()),
        ("labels of an image name no containers of others", Give("labels=spec.labels")),
    )  # fmt: skip
    yield from marked(
        (FLAGS, ISOLATION, CONTRACT),
        ("workers in one network are separated", Give("options={_BRIDGE: bridge}")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_requirements.py", "tests/engine/docker/test_tls.py"),
        ("no gateway on Podman", Give("gateways=not is_rootless(info)")),
        ("no open network on rootless engine", Give("open_network=True")),
        ("rootless engine is recognised", Replace("bool(info.get('Rootless'))", "False")),
        ("no connection without TLS", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_dialect.py",),
        ("objects of others are not taken for ours",
         Replace("_has(found.get('Labels') or {}, labels)", "True")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_lying_engines.py -k never",),
        ("commands of ours do not wait forever", Replace("self._patience", "None")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_ssh.py -k ports",),
        ("user's configuration of ssh does not change what the tunnel is", Instead("()")),
        ("forwarded ports are of this machine only", Text("127.0.0.1:{port}:", "*:{port}:")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_gateway.py -k elsewhere",),
        ("addresses are those of engine's machine", Replace("self.is_here", "True")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/test_run_engine.py",),
        ("another engine than that of the run is refused", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_counters.py",),
        ("counters are read when the command ends", Without("is_last")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_mount_tests.py",),
        ("mounts are tested for each engine", Replace("features.fingerprint", "''")),
        ("mounts are tested with the run's runtime", Without("runtime")),
        ("copies are tested before the first worker", Never()),
    )  # fmt: skip


def guard() -> Iterator[Protection]:
    """Return the protections of a network, and of the container that sets its firewall."""
    yield from marked(
        (RULES, HOST, NETWORK),
        ("host's addresses closed", Replace("(*CLOSED, *machine.addresses)", "CLOSED")),
        ("IPv6 closed", Without("'meta nfproto ipv6 reject'", at="rules-of-worker")),
        ("name servers reachable at port 53 only", Text(" {way} dport 53 accept", " accept")),
        ("number of a worker's flows limited",
         Without("f'ct state new ct count over {MOST_FLOWS} drop'", at="rules-of-worker")),
        ("IPv4 flows inside a container are not tracked",
         Text("{RESOLVER} notrack'", "{RESOLVER} accept'")),
        ("IPv6 flows inside a container are not tracked", Text("6 notrack", "6 accept")),
        ("number of flows to the resolver limited",
         Without('f\'oifname "lo" ct state new ct count over {LOCAL_FLOWS} drop\'',
                 at="rules-of-worker")),
        ("rate of DNS queries limited",
         Without("f'ip daddr {RESOLVER} limit rate over {QUESTIONS}/second burst {BURST} "
                 "packets drop'",
                 at="rules-of-worker")),
        ("rate of a worker's new flows limited",
         Without("f'ct state new limit rate over {NEW_FLOWS}/second burst {BURST} packets drop'",
                 at="rules-of-worker")),
        ("host blocked by rules in its own namespace",
         Text("local, broadcast", "broadcast", at="rules-of-host")),
        ("host's rules end with the process that set them", Replace("'flags owner;'", "''")),
    )  # fmt: skip
    yield from marked(
        (RULES, HOST, NETWORK),
        *((f"{network} closed", Replace(repr(network), "'192.175.48.0/24'"))
          for network in _NETWORKS),
        at="closed-networks",
    )  # fmt: skip
    yield from marked(
        (RULES, FLAGS, NETWORK, HOST),
        ("rules are active before the worker starts", Remove()),
        ("container does not start if its rules fail", Text("nft -f - && echo", "nft -f - ; echo")),
        ("guard has one capability", Give("'capabilities': ('NET_ADMIN', 'SYS_ADMIN')")),
        ("host's helper has one capability if it enters no container",
         Give("capabilities=_FILTERING", at="helper-has-one-capability")),
        ("guard has no mounts", Without("mounts")),
        ("guard gets none of the worker's variables",
         Give("env={**spec.env, 'RULES': guard_rules(egress, machine)}")),
        ("guard's memory limited", Replace("64", "96")),
        ("guard's processes limited", Instead("17")),
    )  # fmt: skip
    yield from _network_filter()
    yield from _gateway()
    yield from marked(
        ("tests/runs/test_repositories.py",),
        ("host blocked for the run's network",
         Instead("None if brokers else pool.submit(lambda: None)")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_shared_resources.py",),
        ("early removal of the network spares workers' containers",
         Without("left.labels.get(ROLE) in _OF_THE_RUN")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_repositories.py", "tests/sandbox/test_run_network.py"),
        ("no container starts before the host is blocked", Remove()),
        ("network stays while a worker may need it", Always()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_shared_resources.py",),
        ("network stays while the last worker may need it", Instead("network is not None")),
    )  # fmt: skip
    yield from marked(
        (RULES, "tests/engine/test_egress.py",
                             "tests/system/test_oci_runtime.py"),
        ("allow-list of another stage does not open a worker without a network",
         Never(at="no-network-stays-no-network")),
        ("only base URLs of the agent program open an address", Replace("names", "environment")),
        ("base URL without a port opens the scheme's port", Instead("5432")),
        ("runtime with its own network stack refused", Always()),
    )  # fmt: skip


def _network_filter() -> Iterator[Protection]:
    """Return the protections of an open network whose workers have no guards."""
    yield from marked(
        (FILTER,),
        ("host filters workers from their first packet on",
         Without("*([f'ip daddr {{ {_closed(machine)} }} reject'] if workers else ())")),
        ("host limits the flows of each worker", Without("*(_LIMITS if workers else ())")),
        at="rules-of-host",
    )  # fmt: skip
    yield from marked(
        (FILTER, HOST),
        ("failed host rules are an error", Remove()),
        ("helper enters only the container that is named",
         Text(' && [[ ${groups[*]} == *"$id"* ]] &&', " &&")),
        ("helper sets no rules in the host's namespace",
         Text("! ns/net -ef /proc/self/ns/net", "-e ns/net")),
        ("helper that does not answer is not asked again", Remove()),
    )  # fmt: skip
    yield from marked(
        (FILTER,),
        ("rules are set before the worker's first instruction",
         Replace("meanwhile(partial(self.filter.apply_early, self._meter))", "suppress()")),
        ("no worker runs without confirmed rules", Remove()),
        ("worker of a dead process gets the rules that it lacks",
         Instead("was_started or self._confirm_filter(self.filter)")),
        ("worker without confirmed rules is removed", Remove()),
    )  # fmt: skip
    yield from marked(
        (FILTER,),
        ("bridge of another program is not used", Never()),
        ("name of another network is not used", Without("check_duplicate")),
    )  # fmt: skip
    yield from marked(
        (FILTER,),
        ("gateways, brokers and ports need a guard", Never()),
        ("workers have guards when the helper is gone", Instead("helper")),
    )  # fmt: skip


def _gateway() -> Iterator[Protection]:
    """Return the protections that confine a worker to the hosts of its allow-list."""
    yield from marked(
        (CONFIGURATIONS, GATEWAY),
        ("worker can send only to its gateway", Replace("'drop'", "'accept'")),
        ("engine's name server closed with an allow-list",
         Without("f'ip daddr 127.0.0.11 {_REFUSE}'")),
        ("gateway forwards nothing",
         Replace("_chain('forward', 'forward', 'filter', 'drop', [])",
                 "_chain('forward', 'forward', 'filter', 'accept', [])")),
        ("gateway serves only its worker", Instead("f'ip daddr {plan.address}'")),
        ("gateway drops packets with foreign source addresses",
         Without("'fib saddr . iif oif missing drop'")),
        ("queries to the gateway's name server are limited",
         Text("limit rate over {_QUESTIONS} kbytes/second burst {_QUESTIONS_AT_ONCE} kbytes "
              "drop",
              "accept")),
        ("gateway cannot reach special networks",
         Without("f'ip daddr {_set(plan.not_public)} {_REFUSE}'", at="connections-of-gateway")),
        ("allow-list cannot open the host's addresses", Remove()),
        ("gateway connects only to listed ports",
         Replace("*([f'tcp dport {_set(plan.host_ports)} accept'] if plan.host_ports else ())",
                 "'meta l4proto tcp accept'",
                 at="connections-of-gateway")),
        ("only the engine reaches published ports",
         Text("ip saddr {plan.publisher} tcp dport", "tcp dport")),
        ("published ports lead to the worker's listed ports alone",
         Text("ip daddr {plan.worker} tcp dport {_set(plan.published)} accept",
              "meta l4proto tcp accept")),
        ("only the gateway's two programs can connect",
         Without("f'meta skuid != {PROGRAM} {_REFUSE}'", at="connections-of-gateway")),
    )  # fmt: skip
    yield from marked(
        (CONFIGURATIONS, NAMES, GATEWAY),
        ("host name is checked before it is resolved", Remove()),
        ("texts that are not names of hosts are refused before they are resolved",
         Remove(at="only-names-of-hosts-are-resolved")),
        ("only the network `learn` lets unlisted names pass", Always()),
        ("resolved address is checked before the connection", Instead("_parts(())")),
    )  # fmt: skip
    yield from marked(
        (CONFIGURATIONS, GATEWAY),
        ("only the network `learn` answers unlisted names", Always()),
        ("unlisted names do not resolve", Without("'local=/#/'")),
        ("DNS queries are not forwarded", Without("'no-resolv'")),
    )  # fmt: skip
    yield from marked(
        (HOSTS,),
        ("addresses are not accepted as host names", Text("+[a-z", "+[a-z0-9")),
        ("wildcard requires a domain", Text(".)+[a", ".)*[a")),
        ("allow-list cannot open loopback", Without("'127.0.0.0/8'")),
        ("allow-list cannot open metadata services", Without("'169.254.0.0/16'")),
        ("allow-list cannot use port 53", Never()),
    )  # fmt: skip
    yield from marked(
        (GATEWAY_CONTAINER, GATEWAY),
        ("gateway's programs have no capabilities",
         Text("--bounding-set=-all", at="gateway-script")),
        ("gateway's container has four capabilities",
         Instead("('NET_ADMIN', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_ADMIN')")),
        ("gateway notices a program that does not start",
         Text("  [[ -e /proc/$names && -e /proc/$proxy ]]\n", at="gateway-script")),
        ("gateway ends when its log is read",
         Text("kill -USR1 $proxy", "true", at="gateway-script")),
        ("gateway ends with its name server",
         Text("wait -n -p ended || true", "wait", at="gateway-script")),
        ("gateway's memory limited", Replace("128", "256")),
    )  # fmt: skip
    yield from marked(
        (GATEWAY_CONTAINER, GATEWAY),
        ("worker's network is internal", Give("internal=False")),
        ("host has no address in the worker's network", Replace("'true'", "'false'")),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_preflight.py",),
        ("engine without gateways refused for an allow-list", Remove()),
        ("rootless engine refused for an open network", Never()),
    )  # fmt: skip


def images() -> Iterator[Protection]:
    """Return the protections of the user's files from images, and of the machine from images."""
    yield from marked(
        (PROJECT_IMAGES,),
        ("git directory excluded from images", Without("name == '.git'")),
        ("workers' worktrees excluded from images",
         Without("is_worker_worktree(Path(place, name))")),
        ("untracked secrets excluded from images", Without("is_secret(path)")),
        ("untracked logs excluded from images", Without("_is_log(path)")),
    )  # fmt: skip
    yield from marked(
        ("tests/engine/docker/test_image_environment.py",),
        ("image does not mislead git", Instead("{}")),
    )  # fmt: skip
    yield from marked(
        ("tests/worker/workspace/test_copy_untracked.py",),
        ("ignored files excluded from images", Remove()),
    )  # fmt: skip
    yield from marked(
        (PROJECT_IMAGES,),
        ("unnamed build stages removed", Remove()),
        ("replaced images removed", Remove()),
    )  # fmt: skip
    yield from marked(
        (ARCHIVE,),
        ("archive replaces only images of ours", Remove()),
        ("digests of loaded images", Never("digests and image.digest not in digests")),
    )  # fmt: skip
    yield from marked(
        (UNINSTALL,),
        ("images of the user stay", Instead("images")),
    )  # fmt: skip


def services() -> Iterator[Protection]:
    """Return the protections that isolate a worker's services."""
    yield from marked(
        (SERVICES,),
        ("service has five capabilities",
         Instead("('CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'SETGID', 'SETUID', 'NET_ADMIN')")),
        ("service has no network if the worker has none", Instead("self._worker.run.network")),
        ("worker's network rules apply to services", Without("egress")),
        ("service unreachable from a setup with its own network", Instead("self._holder is None")),
        ("service's memory limited", Without("memory=service.memory")),
        ("service's CPUs limited", Without("cpus")),
        ("service's log limited", Give("limit=10 ** 9")),
    )  # fmt: skip
