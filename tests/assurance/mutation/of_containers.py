"""Protections that isolate a container and its network."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

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
CONFIGURATIONS = "tests/gateway/test_configurations.py"
HOSTS = "tests/gateway/test_hosts.py"
PROJECT_IMAGES = "tests/system/test_project_images.py"
ARCHIVE = "tests/engine/images/test_archive.py"
UNINSTALL = "tests/cleanup/test_uninstall.py"
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
    yield from patches(
        "engine/docker/arguments.py",
        (SECCOMP,),
        ("custom seccomp profile", '["no-new-privileges", *filtered]',
         '["no-new-privileges"]'),
    )  # fmt: skip
    yield from patches(
        "engine/docker/arguments.py",
        (FLAGS, ADDITIONS, ISOLATION, CONTRACT),
        ("capabilities dropped", 'cap_drop=["ALL"]', "cap_drop=[]"),
        ("no new privileges", '["no-new-privileges", *filtered]', "[*filtered]"),
        ("root file system read-only",
         "read_only=True,\n        ipc", "read_only=False,\n        ipc"),
        ("init process reaps orphans", "init=True", "init=False"),
        ("unprivileged user", '"user": spec.user', '"user": ""'),
        ("requested network is used", "network_mode=spec.network", 'network_mode="bridge"'),
        ("requested runtime is used", "runtime=spec.runtime", "runtime=None"),
        ("memory limit", "mem_limit=spec.memory,\n        memswap_limit=spec.memory,", ""),
        ("no swap beyond memory", "memswap_limit=spec.memory", "memswap_limit=None"),
        ("process limit", "pids_limit=spec.pids", "pids_limit=None"),
        ("CPU limit", "None if spec.cpus is None else round(spec.cpus * 1e9)", "None"),
        ("open files limit",
         'Ulimit(name="nofile", soft=spec.open_files, hard=spec.open_files),', ""),
        ("no core dumps", 'Ulimit(name="core", soft=0, hard=0),', ""),
        ("private IPC namespace", 'ipc_mode="private"', 'ipc_mode="shareable"'),
        ("daemon stores no output", 'LogConfig(type="none")', 'LogConfig(type="json-file")'),
        ("tmpfs size", "size={mount.size},", ""),
        ("tmpfs inodes", "nr_inodes={mount.inodes},", ""),
        ("tmpfs nosuid", "nosuid,", ""),
        ("tmpfs nodev", "nodev,", ""),
        ("tmpfs mode", "mode={mount.mode}{owner}", "{owner[1:]}"),
        ("ports published on 127.0.0.1 only", '("127.0.0.1", host)', '("0.0.0.0", host)'),
        ("image's entrypoint is not run", "None if spec.own_program else []", "None"),
        ("image's health check is not run", '"healthcheck": {"test": ["NONE"]},', ""),
        ("proxies of the user's Docker configuration stay outside",
         '"use_config_proxy": False,', ""),
        ("name servers of the machine are unknown without a network",
         'dns=["127.0.0.1"] if spec.network == "none" else None', "dns=None"),
        ("private cgroup namespace", 'cgroupns="private",', ""),
        ("overlay volumes are labelled",
         "no_copy=True, labels=dict(labels)", "no_copy=True, labels={}"),
        ("read-only mounts", "read_only=mount.read_only", "read_only=False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/container.py",
        (FLAGS, ISOLATION, CONTRACT),
        ("anonymous volumes removed", "v=True, force=True", "v=False, force=True"),
        ("running containers can be removed", "v=True, force=True", "v=True, force=False"),
        ("paused containers can be stopped", 'if state["Paused"]:', "if False:"),
    )  # fmt: skip


def engine() -> Iterator[Protection]:
    """Return the protections that the engine adds."""
    yield from patches(
        "engine/docker/image_defaults.py", (FLAGS, ADDITIONS),
        ("image's volumes are in memory",
         "mounts=(*spec.mounts, *volumes)", "mounts=spec.mounts"),
        ("no volume of an image hides files of a worker",
         "if path.startswith(tuple(files)):", "if False:"),
        ("labels of an image name no containers of others",
         "labels={**ours, **spec.labels}", "labels=spec.labels"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/networks.py", (FLAGS, ISOLATION, CONTRACT),
        ("workers in one network are separated",
         '"com.docker.network.bridge.enable_icc": "false", ', ""),
    )  # fmt: skip
    yield from patches(
        "engine/docker/requirements.py", ("tests/engine/docker/test_requirements.py",),
        ("Podman refused by name",
         'if any(name.startswith("Podman") for name in names):', "if False:"),
        ("remote engine refused",
         'if not base_url.startswith("http+docker://"):', "if False:"),
        ("rootless engine refused", 'if any("rootless" in option', 'if any("no such" in option'),
    )  # fmt: skip


def guard() -> Iterator[Protection]:
    """Return the protections of a network, and of the container that sets its firewall."""
    yield from patches(
        "engine/docker/rules.py", (RULES, HOST, NETWORK),
        *((f"{network} closed", f'"{network}"', '"192.175.48.0/24"') for network in _NETWORKS),
        ("host's addresses closed", "(*CLOSED, *own_addresses())", "CLOSED"),
        ("IPv6 closed", '"meta nfproto ipv6 reject",', ""),
        ("name servers reachable at port 53 only", " {way} dport 53 accept", " accept"),
        ("number of a worker's flows limited",
         'f"ct state new ct count over {MOST_FLOWS} drop",', ""),
        ("IPv4 flows inside a container are not tracked", "{RESOLVER} notrack'",
         "{RESOLVER} accept'"),
        ("IPv6 flows inside a container are not tracked",
         "nfproto ipv6 notrack'", "nfproto ipv6 accept'"),
        ("number of flows to the resolver limited",
         """        f'oifname "lo" ct state new ct count over {LOCAL_FLOWS} drop',\n""", ""),
        ("rate of DNS queries limited", """        f"ip daddr {RESOLVER} limit rate over \
{QUESTIONS}/second burst {BURST} packets drop",
""", ""),
        ("rate of a worker's new flows limited", """        f"ct state new limit rate over \
{NEW_FLOWS}/second burst {BURST} packets drop",
""", ""),
        ("host blocked by rules in its own namespace", "local, broadcast", "broadcast"),
        ("host's rules end with the process that set them", '"flags owner;"', '""'),
    )  # fmt: skip
    yield from patches(
        "engine/docker/firewall.py", (RULES, FLAGS, NETWORK, HOST),
        ("rules are active before the worker starts", "        await_ready(guard)\n", ""),
        ("container does not start if its rules fail", "nft -f - && echo", "nft -f - ; echo"),
        ("guard has one capability", '"capabilities": ("NET_ADMIN",)',
         '"capabilities": ("NET_ADMIN", "SYS_ADMIN")'),
        ("host's helper has one capability if it enters no container",
         '_FILTERING if workers else ("NET_ADMIN",)', "_FILTERING"),
        ("guard has no mounts", '        "mounts": (),\n', ""),
        ("guard gets none of the worker's variables",
         'env={"RULES": guard', 'env={**spec.env, "RULES": guard'),
        ("guard's memory limited", "_MEMORY = 64 * 1024**2", "_MEMORY = 96 * 1024**2"),
        ("guard's processes limited", "_PIDS = 16", "_PIDS = 17"),
    )  # fmt: skip
    yield from _network_filter()
    yield from _gateway()
    yield from patches(
        "runs/shared_resources.py",
        ("tests/runs/test_repositories.py",),
        ("host blocked for the run's network",
         "else pool.submit(_close_host, checked, directory)",
         "else pool.submit(lambda: None)"),
    )  # fmt: skip
    yield from patches(
        "runs/shared_resources.py",
        ("tests/runs/test_shared_resources.py",),
        ("early removal of the network spares workers' containers",
         " for left in found if left.labels.get(ROLE) in _OF_THE_RUN)", " for left in found)"),
    )  # fmt: skip
    yield from patches(
        "execution/run_network.py",
        ("tests/runs/test_repositories.py", "tests/execution/test_run_network.py"),
        ("no container starts before the host is blocked", "        self.closed.result()\n", ""),
        ("network stays while a worker may need it", "self._users == {worker}", "True"),
    )  # fmt: skip
    yield from patches(
        "worker/context.py",
        ("tests/runs/test_shared_resources.py",),
        ("network stays while the last worker may need it",
         "network is not None and verdict.status is Status.SUCCESS and not may_follow",
         "network is not None"),
    )  # fmt: skip
    yield from patches(
        "engine/egress.py", (RULES, "tests/engine/test_egress.py",
                             "tests/system/test_oci_runtime.py"),
        ("allow-list of another stage does not open a worker without a network",
         '    if access.network == "none":\n', "    if False:\n"),
        ("only base URLs of the agent program open an address", "for name in names if",
         "for name in environment if"),
        ("base URL without a port opens the scheme's port", "_PORTS.get(parts.scheme, 0)", "5432"),
        ("runtime with its own network stack refused",
         "return runtime is None or runtime in _FILTERED", "return True"),
    )  # fmt: skip


def _network_filter() -> Iterator[Protection]:
    """Return the protections of an open network whose workers have no guards."""
    yield from patches(
        "engine/docker/rules.py", (FILTER,),
        ("host filters workers from their first packet on",
         '        *([f"ip daddr {{ {_closed()} }} reject"] if workers else ()),\n', ""),
        ("host limits the flows of each worker", "*(_LIMITS if workers else ()),", ""),
    )  # fmt: skip
    yield from patches(
        "engine/docker/network_filter.py", (FILTER, HOST),
        ("failed host rules are an error",
         "        if line != READY:\n            raise EngineError(output_line(line))\n", ""),
        ("helper enters only the container that is named",
         """ && [[ ${groups[*]} == *"$id"* ]] &&""", " &&"),
        ("helper sets no rules in the host's namespace",
         "! ns/net -ef /proc/self/ns/net", "-e ns/net"),
        ("helper that does not answer is not asked again",
         "            self.give_up()\n            raise", "            raise"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/container.py", (FILTER,),
        ("rules are set before the worker's first instruction",
         "with meanwhile(partial(self.filter.apply_early, self._meter)):", "with suppress():"),
        ("no worker runs without confirmed rules",
         "            self._confirm_filter(self.filter)\n", ""),
        ("worker of a dead process gets the rules that it lacks",
         "            self._confirm_filter(self.filter)\n",
         "            if not was_started:\n                self._confirm_filter(self.filter)\n"),
        ("worker without confirmed rules is removed",
         "            self.remove()\n            raise", "            raise"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/networks.py", (FILTER,),
        ("bridge of another program is not used",
         "    if (_INTERFACES / bridge).exists():\n", "    if False:\n"),
        ("name of another network is not used", "            check_duplicate=True,\n", ""),
    )  # fmt: skip
    yield from patches(
        "engine/docker/engine.py", (FILTER,),
        ("gateways, brokers and ports need a guard",
         "if egress.hosts is not None or spec.link is not None or spec.ports:", "if False:"),
        ("workers have guards when the helper is gone",
         "return helper if helper is not None and helper.works() else None", "return helper"),
    )  # fmt: skip


def _gateway() -> Iterator[Protection]:
    """Return the protections that confine a worker to the hosts of its allow-list."""
    yield from patches(
        "gateway/packet_filter.py", (CONFIGURATIONS, GATEWAY),
        ("worker can send only to its gateway",
         '_chain("output", "output", "filter", "drop", out)',
         '_chain("output", "output", "filter", "accept", out)'),
        ("engine's name server closed with an allow-list",
         '        f"ip daddr 127.0.0.11 {_REFUSE}",\n', ""),
        ("gateway forwards nothing", '"forward", "forward", "filter", "drop"',
         '"forward", "forward", "filter", "accept"'),
        ("gateway serves only its worker", 'here = f"ip saddr {plan.worker} ip daddr',
         'here = f"ip daddr'),
        ("gateway drops packets with foreign source addresses",
         '        "fib saddr . iif oif missing drop",\n', ""),
        ("queries to the gateway's name server are limited",
         "limit rate over {_QUESTIONS} kbytes/second burst {_QUESTIONS_AT_ONCE} kbytes drop",
         "accept"),
        ("gateway cannot reach special networks",
         '        f"ip daddr {_set(plan.not_public)} {_REFUSE}",\n', ""),
        ("allow-list cannot open the host's addresses",
         '    yield f"ip daddr {_set(plan.unreachable)} {_REFUSE}"\n', ""),
        ("gateway connects only to listed ports",
         '*([f"tcp dport {_set(plan.host_ports)} accept"] if plan.host_ports else ()),',
         '"meta l4proto tcp accept",'),
        ("only the engine reaches published ports", "ip saddr {plan.publisher} tcp dport",
         "tcp dport"),
        ("published ports lead to the worker's listed ports alone",
         "ip daddr {plan.worker} tcp dport {_set(plan.published)} accept",
         "meta l4proto tcp accept"),
        ("only the gateway's two programs can connect",
         '        f"meta skuid != {PROGRAM} {_REFUSE}",\n', ""),
    )  # fmt: skip
    yield from patches(
        "gateway/proxy.py", (CONFIGURATIONS, NAMES, GATEWAY),
        ("host name is checked before it is resolved",
         '    yield f"set-var({why}) str(name) unless {{ var({ok}) -m bool }}"\n', ""),
        ("texts that are not names of hosts are refused before they are resolved",
         '    yield f"set-var({why}) str(invalid-name) unless {is_name}"\n', ""),
        ("only the network `learn` lets unlisted names pass",
         "    if plan.learn:\n", "    if True:\n"),
        ("resolved address is checked before the connection",
         "for part in _parts(plan.not_public):", "for part in _parts(()):"),
    )  # fmt: skip
    yield from patches(
        "gateway/dns.py", (CONFIGURATIONS, GATEWAY),
        ("only the network `learn` answers unlisted names",
         "    if plan.learn:\n", "    if True:\n"),
        ("unlisted names do not resolve", '        "local=/#/",\n', ""),
        ("DNS queries are not forwarded", '        "no-resolv",\n', ""),
    )  # fmt: skip
    yield from patches(
        "gateway/hosts.py", (HOSTS,),
        ("addresses are not accepted as host names",
         r'(?:{_LABEL}\.)+[a-z]', r'(?:{_LABEL}\.)+[a-z0-9]'),
        ("wildcard requires a domain", r'(?:{_LABEL}\.)+[a-z]', r'(?:{_LABEL}\.)*[a-z]'),
        ("allow-list cannot open loopback", '"127.0.0.0/8", ', ""),
        ("allow-list cannot open metadata services", '"169.254.0.0/16", ', ""),
        ("allow-list cannot use port 53", "int(text) == _NAME_SERVER", "False"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/gateway.py", (GATEWAY_CONTAINER, GATEWAY),
        ("gateway's programs have no capabilities", "--bounding-set=-all", ""),
        ("gateway's container has four capabilities",
         '"SETPCAP", "SETUID")', '"SETPCAP", "SETUID", "SYS_ADMIN")'),
        ("gateway notices a program that does not start",
         "  [[ -e /proc/$names && -e /proc/$proxy ]]\n", ""),
        ("gateway ends when its log is read", "kill -USR1 $proxy", "true"),
        ("gateway ends with its name server", "wait -n -p ended || true", "wait"),
        ("gateway's memory limited", "_GATEWAY_MEMORY = 128 *", "_GATEWAY_MEMORY = 256 *"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/networks.py", (GATEWAY_CONTAINER, GATEWAY),
        ("worker's network is internal", "internal=True", "internal=False"),
        ("host has no address in the worker's network", '"true"}', '"false"}'),
    )  # fmt: skip
    yield from patches(
        "runs/preflight.py", ("tests/runs/test_preflight.py",),
        ("engine without gateways refused for an allow-list",
         "            of_task.attempt(check_gateways, config, settings.egress, features.value)\n",
         ""),
    )  # fmt: skip


def images() -> Iterator[Protection]:
    """Return the protections of the user's files from images, and of the machine from images."""
    yield from patches(
        "workspace/untracked.py", (PROJECT_IMAGES,),
        ("git directory excluded from images",
         'name == ".git" or is_worker_worktree(Path(place, name))',
         "is_worker_worktree(Path(place, name))"),
        ("workers' worktrees excluded from images",
         'name == ".git" or is_worker_worktree(Path(place, name))',
         'name == ".git"'),
        ("untracked secrets excluded from images", "(is_secret(path) or _is_log(path))",
         "_is_log(path)"),
        ("untracked logs excluded from images", "(is_secret(path) or _is_log(path))",
         "is_secret(path)"),
    )  # fmt: skip
    yield from patches(
        "engine/docker/images.py", (PROJECT_IMAGES,),
        ("unnamed build stages removed", "                steps.remove(self._client)",
         "                pass"),
        ("replaced images removed",
         "            remove_unnamed(self._client, before.id, parents=True)", "            pass"),
    )  # fmt: skip
    yield from patches(
        "engine/images/archive.py",
        (ARCHIVE,),
        ("archive replaces only images of ours",
         "        _check_names([image.name for image in found])\n", ""),
        ("digests of loaded images", "digests and image.digest not in digests", "False"),
    )  # fmt: skip
    yield from patches(
        "cleanup/uninstall.py",
        (UNINSTALL,),
        ("images of the user stay", "{name for name in images if is_own(name)}", "images"),
    )  # fmt: skip


def services() -> Iterator[Protection]:
    """Return the protections that isolate a worker's services."""
    yield from patches(
        "worker/services.py", (SERVICES,),
        ("service has five capabilities",
         '"SETGID", "SETUID")', '"SETGID", "SETUID", "NET_ADMIN")'),
        ("service has no network if the worker has none",
         '"none" if self._egress is None else self._worker.run.network',
         "worker.run.network"),
        ("worker's network rules apply to services",
         "worker.settings.egress.get(worker.settings.access.task)",
         "None"),
        ("service unreachable from a setup with its own network",
         "self._holder is None or (spec.network, spec.egress) != (self._network, self._egress)",
         "self._holder is None"),
        ("service's memory limited", "memory=service.memory,", ""),
        ("service's CPUs limited", "cpus=service.cpus,", ""),
        ("service's log limited", "limit=_LOG", "limit=10**9"),
    )  # fmt: skip
