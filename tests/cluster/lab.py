"""Start a real Kubernetes cluster on this machine, in namespaces of its own.

The API server, etcd, the controller manager and the scheduler live in the network namespace of
the hub. Each node has a network, mount and UTS namespace, a containerd, a kubelet and cgroups of
its own. Nothing touches the network of this machine: a client enters the hub (`Lab.inside`). All
names begin with one random prefix, so two clusters never meet.

`python -m tests.cluster.lab test ARGS…` runs pytest in the hub of a new cluster. By hand:
`up DIRECTORY`, `kubectl DIRECTORY ARGS…`, `inside DIRECTORY COMMAND…`, `down DIRECTORY`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.engine.kubernetes.manifest import manifest
from tests.support.ports import free_port

NAMESPACE = "agents"
LAB = "ORCHESTRATOR_TEST_CLUSTER"
"""The variable with the directory of the cluster that tests use."""
BASE_IMAGE = "orchestrator/base:latest"
_NETWORK = "10.77.0"
HUB = f"{_NETWORK}.254"
_PUBLIC = "44.44.44.44"
PRIVATE = f"{HUB}:5001"
"""The registry that demands a password, and has the same images as the other one."""
PROGRAMS = "ORCHESTRATOR_CLUSTER_PROGRAMS"
"""The variable with a directory of other programs of a cluster, laid out as `build.sh` does."""
_CGROUPS = Path("/sys/fs/cgroup")
_NEW = (1, 27)
_OF_OLD = (
    "--feature-gates=TTLAfterFinished", "--port=0", "--container-runtime=",
    "--pod-infra-container-image",
)  # fmt: skip
"""Options that clusters from `_NEW` on do not have."""

_CERTIFICATES = """
umask 077
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab-ca -keyout ca.key -out ca.crt
openssl genrsa -out sa.key 2048
openssl rsa -in sa.key -pubout -out sa.pub
echo subjectAltName=IP:{hub},IP:10.96.0.1,IP:127.0.0.1 > names
sign() {{
    openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout $1.key -out $1.csr
    openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
        -extfile names -out $1.crt
}}
sign api /CN=apiserver
sign kubelet-client /O=system:masters/CN=apiserver
"""

_HUB_NETWORK = """
ip netns add {prefix}-hub
ip -n {prefix}-hub link set lo up
ip -n {prefix}-hub link add br0 type bridge
ip -n {prefix}-hub addr add {hub}/24 dev br0
ip -n {prefix}-hub link set br0 up
"""

_NODE_NETWORK = """
ip netns add {name}
ip link add {name} netns {prefix}-hub type veth peer name eth0 netns {name}
ip -n {prefix}-hub link set {name} master br0 up
ip -n {prefix}-hub route add 172.30.{node}.0/24 via {address}
ip -n {name} addr add {address}/24 dev eth0
ip -n {name} link set eth0 up
ip -n {name} link set lo up
ip -n {name} route add default via {hub}
nsenter --net=/run/netns/{name} sysctl -qw net.ipv4.ip_forward=1
"""

_ETCD = """etcd --data-dir={d}/etcd --unsafe-no-fsync --listen-peer-urls=http://127.0.0.1:12380
--listen-client-urls=http://127.0.0.1:12379 --advertise-client-urls=http://127.0.0.1:12379"""

_API_SERVER = """kube-apiserver --etcd-servers=http://127.0.0.1:12379 --bind-address={hub}
--advertise-address={hub} --secure-port=6443 --tls-cert-file={d}/api.crt
--tls-private-key-file={d}/api.key --client-ca-file={d}/ca.crt
--kubelet-client-certificate={d}/kubelet-client.crt --kubelet-client-key={d}/kubelet-client.key
--kubelet-preferred-address-types=InternalIP --token-auth-file={d}/tokens.csv
--authorization-mode=RBAC --service-cluster-ip-range=10.96.0.0/16
--service-account-issuer=https://kubernetes --service-account-signing-key-file={d}/sa.key
--service-account-key-file={d}/sa.pub --feature-gates=TTLAfterFinished=true"""

_CONTROLLER_MANAGER = """kube-controller-manager --kubeconfig={d}/kubeconfig --leader-elect=false
--service-account-private-key-file={d}/sa.key --root-ca-file={d}/ca.crt --node-monitor-period=1s
--node-monitor-grace-period=8s --node-eviction-rate=1 --feature-gates=TTLAfterFinished=true
--bind-address=127.0.0.1 --port=0"""

_SCHEDULER = """kube-scheduler --kubeconfig={d}/kubeconfig --leader-elect=false
--bind-address=127.0.0.1 --port=0"""

_KUBELET = """kubelet --kubeconfig={d}/kubeconfig --config={n}/kubelet.json --cert-dir={n}/pki
--hostname-override=node{node} --node-ip={address} --root-dir={n}/kubelet
--container-runtime=remote --container-runtime-endpoint=unix://{n}/run/containerd.sock
--pod-infra-container-image={pause}"""

# Kubelets that share a directory delete each other's logs.
_CONTAINERD = """
hostname node{node}
echo $$ > {n}/pid
mkdir -p /var/log/pods /var/log/containers /run/netns
mount --bind {n}/pods /var/log/pods
mount --bind {n}/containers /var/log/containers
mount --bind {n}/netns /run/netns
exec containerd -c {n}/containerd.toml
"""

_CONTAINERD_SETTINGS = """\
version = 2
root = "{n}/root"
state = "{n}/run/state"
oom_score = 0
[grpc]
  address = "{n}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{n}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."{registry}"]
  endpoint = ["http://{hub}:5000"]
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."{private}"]
  endpoint = ["http://{private}"]
"""

_PAUSE = """\
FROM {image} AS base
USER root
RUN mkdir /pause && cp -L --parents /bin/sleep $(ldd /bin/sleep | grep -o "/[^ ]*") /pause
FROM scratch
COPY --from=base /pause /
CMD ["/bin/sleep", "infinity"]
"""
"""The image that every pod needs: it shares no layer with those of workers."""

_REGISTRY = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {d}/registry}}}}
http: {{addr: "{address}"}}
"""
_LOGIN = "auth: {{htpasswd: {{realm: lab, path: {d}/htpasswd}}}}\n"
_PASSWORDS = "ann:$2b$04$oFwNPJMjughGkLmJyaZvg.R0/4tU.eEXLXboO5Vx4aTC.jvMWSmNa\n"
"""The password of `ann` is `sesame`."""


class Lab:
    """A cluster whose files are all in `directory`, which is absent or empty at first."""

    def __init__(self, directory: Path, *, nodes: int = 3) -> None:
        self.directory = directory.resolve()
        settings = self.directory / "lab.json"
        if not settings.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            new = {"prefix": f"oc{secrets.token_hex(2)}", "nodes": nodes, "port": free_port()}
            settings.write_text(json.dumps(new))
        found = json.loads(settings.read_text())
        self.prefix: str = found["prefix"]
        self.nodes = range(1, found["nodes"] + 1)
        self.registry = f"127.0.0.1:{found['port']}"
        """The registry to which this machine's Docker engine pushes images for the nodes."""
        self._pause = f"docker.io/orchestrator/pause:{self.prefix}"
        if given := os.environ.get(PROGRAMS):
            self.programs = Path(given)
        else:
            build = Path(__file__).with_name("build.sh")  # takes minutes, once
            self.programs = Path(_printed(build).strip())
        named = _printed(self.programs / "bin/kube-apiserver", "--version")
        major, minor, *_ = named.rpartition("v")[2].split(".")
        self.version = int(major), int(minor)

    # What a test does

    def inside(self, *command: str | Path) -> list[str]:
        """Return the command that runs `command` where the API server is reached."""
        return ["nsenter", f"--net=/run/netns/{self.prefix}-hub", *map(str, command)]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator, and return its output."""
        settings = f"--kubeconfig={self.directory}/kubeconfig"
        command = self.inside(self.programs / "bin/kubectl", settings, *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def load(self, *images: str) -> None:
        """Import further images of the Docker engine on all nodes."""
        archive = self.directory / "image.tar"
        self._shell(f"docker save -o {archive} {' '.join(images)}")
        for node in self.nodes:
            self._shell(f"{self._ctr(node)} image import {archive}")
        archive.unlink()

    def remove_images(self) -> None:
        """Remove all images but the one that every pod needs from all nodes."""
        for node in self.nodes:
            ctr = [*self._ctr(node).split(), "image"]
            listed = subprocess.run([*ctr, "ls"], check=True, stdout=subprocess.PIPE, text=True)
            rows = [line.split() for line in listed.stdout.strip().split("\n")[1:]]
            (kept,) = {digest for name, _, digest, *_ in rows if name == self._pause}
            removed = [name for name, _, digest, *_ in rows if digest != kept]
            subprocess.run([*ctr, "rm", "--sync", *removed], check=True, stdout=subprocess.PIPE)

    @contextlib.contextmanager
    def public_address(self) -> Iterator[str]:
        """Give the hub a public address, which pods reach through their nodes."""
        where = f"-n {self.prefix}-hub addr"
        self._shell(f"ip {where} add {_PUBLIC}/32 dev lo")
        try:
            yield _PUBLIC
        finally:
            self._shell(f"ip {where} del {_PUBLIC}/32 dev lo")

    def unplug(self, node: int) -> None:
        """Cut the node's network; its programs go on."""
        self._shell(f"ip -n {self.prefix}-hub link set {self._name(node)} down")

    def plug(self, node: int) -> None:
        """Connect the node's network again."""
        self._shell(f"ip -n {self.prefix}-hub link set {self._name(node)} up")

    def cut_power(self, node: int) -> None:
        """Kill all programs of the node, its containers included."""
        self.unplug(node)
        _kill_all(lambda: self._processes(node))

    def want_memory(self, node: int, wanted: str | None) -> None:
        """Start the node's kubelet again: if less memory than that is free, it evicts pods."""
        self.stop_kubelet(node)
        self.start_kubelet(node, wanted)

    def stop_kubelet(self, node: int) -> None:
        """Kill the node's kubelet with -9; its containers go on."""
        pid = int((self.directory / f"kubelet{node}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        self._until("the kubelet has ended", lambda: _has_ended(pid))

    def start_kubelet(self, node: int, wanted: str | None = None) -> None:
        """Start the node's kubelet, which evicts pods if less memory than that is free."""
        n = self.directory / f"n{node}"
        settings = _kubelet_settings(f"/{self._name(node)}", self.directory / "ca.crt")
        if self.version >= _NEW:
            settings["failCgroupV1"] = False
        if wanted is not None:
            # Unlike that of `evictionHard`, this memory is not missing for new pods.
            settings["evictionSoft"] = {"memory.available": wanted}
            settings["evictionSoftGracePeriod"] = {"memory.available": "1s"}
        (n / "kubelet.json").write_text(json.dumps(settings))
        values = {"node": node, "address": f"{_NETWORK}.{node}", "pause": self._pause}
        program, *options = self._options(_KUBELET.format(d=self.directory, n=n, **values))
        enter = ["nsenter", "-t", (n / "pid").read_text().strip(), "--net", "--mount", "--uts"]
        self._start(f"kubelet{node}", [*enter, str(self.programs / "bin" / program), *options])

    def limit_memory(self, container: str, size: int | None = None) -> None:
        """Limit the memory of a container, by its id in the cluster; by default to what it uses."""
        (group,) = (
            group
            for name in map(self._name, self.nodes)
            for top in (_CGROUPS, _CGROUPS / "memory")
            for group in top.glob(f"{name}/**/{container.rpartition('/')[2]}")
        )
        is_old = (group / "memory.limit_in_bytes").exists()
        limit, use = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if is_old
            else ("memory.max", "memory.current")
        )
        # The kernel refuses less than what cannot be freed.
        with contextlib.suppress(OSError):
            (group / limit).write_text(str(size or int((group / use).read_text())))

    def stop_api_server(self) -> None:
        """Kill the API server with -9."""
        pid = int((self.directory / "kube-apiserver.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        self._until("the API server has ended", lambda: _has_ended(pid))

    def start_api_server(self) -> None:
        """Start the API server, and wait until it answers."""
        self._start_in_hub(_API_SERVER)
        self._until("the API server answers", lambda: self.kubectl("get", "--raw", "/readyz"))

    # Up and down

    def up(self, images: Sequence[str]) -> None:
        """Start the cluster, with these images of the Docker engine on all nodes."""
        self._shell(_CERTIFICATES)
        self._write_accounts()
        self._connect()
        archive = self._save(images)
        self._start_registries()
        self._start_in_hub(_ETCD)
        self.start_api_server()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self.start_node(node, archive), self.nodes))
        archive.unlink()
        get = ("get", "nodes", "--no-headers")
        self._until(
            "all nodes are ready", lambda: self.kubectl(*get).count(" Ready") == len(self.nodes)
        )
        # One that starts while no node is ready never moves a pod away from a node.
        self._start_in_hub(_CONTROLLER_MANAGER)
        self._start_in_hub(_SCHEDULER)
        taints = ("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}")
        self._until("no node has a taint", lambda: not self.kubectl(*taints).strip())
        made = manifest(NAMESPACE, users=["runner"], pods=100)
        self.kubectl("apply", "-f", "-", stdin=made)
        account = ("get", "serviceaccount", "default", "-n", NAMESPACE)
        self._until("the namespace has its account", lambda: self.kubectl(*account))

    def start_node(self, node: int, archive: Path | None = None) -> None:
        """Start the node's containerd and kubelet, and import the images of `archive`."""
        n = self.directory / f"n{node}"
        values = {"n": n, "node": node, "pause": self._pause}
        for name in ("pods", "containers", "cni", "networks", "netns", "run"):
            (n / name).mkdir(parents=True, exist_ok=True)
        for directory in self._cgroups(node):
            directory.mkdir(exist_ok=True)
        (n / "cni/10.conflist").write_text(json.dumps(_pod_network(node, n / "networks")))
        values |= {"hub": HUB, "registry": self.registry, "private": PRIVATE}
        (n / "containerd.toml").write_text(
            _CONTAINERD_SETTINGS.format(plugins=self.programs / "cni", **values)
        )
        self.plug(node)
        (n / "pid").unlink(missing_ok=True)
        enter = ["nsenter", f"--net=/run/netns/{self._name(node)}", "unshare", "--uts", "--mount"]
        self._start(f"containerd{node}", [*enter, "sh", "-ec", _CONTAINERD.format(**values)])
        ctr = self._ctr(node)
        self._until(f"containerd of node {node} answers", lambda: self._shell(f"{ctr} version"))
        if archive:
            self._shell(f"{ctr} image import {archive}")
        self.start_kubelet(node)

    def down(self) -> None:
        """Kill all programs; remove namespaces, cgroups and files. Repeatable."""
        subprocess.run(["docker", "rmi", self._pause], capture_output=True)
        for path in self.directory.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(path.read_text()), signal.SIGKILL)
        for node in self.nodes:
            _kill_all(lambda node=node: self._processes(node))  # type: ignore[misc]
        _kill_all(lambda: _in_namespace(f"{self.prefix}-hub"))
        for name in (*map(self._name, self.nodes), f"{self.prefix}-hub"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed(mounts):
            if mount.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "-l", mount], capture_output=True)
        found = [_CGROUPS.glob(f"{top}{self.prefix}-n*") for top in ("", "*/")]
        for top in [top for tops in found for top in tops]:
            for path in sorted(top.glob("**/"), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
        shutil.rmtree(self.directory, ignore_errors=True)

    # Parts

    def _name(self, node: int) -> str:
        return f"{self.prefix}-n{node}"

    def _ctr(self, node: int) -> str:
        return f"ctr -a {self.directory}/n{node}/run/containerd.sock -n k8s.io"

    def _cgroups(self, node: int) -> list[Path]:
        tops = [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
        if (_CGROUPS / "cgroup.controllers").exists():
            tops = [_CGROUPS]
        return [top / self._name(node) for top in tops if top.name != "unified"]

    def _processes(self, node: int) -> set[int]:
        pids = _in_namespace(self._name(node))
        for path in [path for top in self._cgroups(node) for path in top.glob("**/cgroup.procs")]:
            with contextlib.suppress(OSError):
                pids |= {int(pid) for pid in path.read_text().split()}
        return pids - {0}

    def _shell(self, script: str, **values: object) -> bool:
        text = script.format(hub=HUB, prefix=self.prefix, **values)
        done = subprocess.run(
            ["sh", "-ec", text],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{text.strip()}: {done.stderr.strip()}")
        return True

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o022,
            )
        (self.directory / f"{name}.pid").write_text(str(process.pid))
        process.returncode = 0  # it outlives this process, which does not wait for it

    def _options(self, command: str) -> list[str]:
        words = command.split()
        return [word for word in words if self.version < _NEW or not word.startswith(_OF_OLD)]

    def _start_in_hub(self, command: str) -> None:
        program, *options = self._options(command.format(d=self.directory, hub=HUB))
        self._start(program, self.inside(self.programs / "bin" / program, *options))

    def _start_registries(self) -> None:
        """Start a registry for Docker on this machine, and two for the nodes: of the same images.

        Docker trusts addresses below 127.0.0.0/8 without a certificate.
        """
        script = Path(__file__).with_name("registry.sh")
        done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
        (self.directory / "htpasswd").write_text(_PASSWORDS)
        servers = {"registry": self.registry, "nodes": f"{HUB}:5000", "private": PRIVATE}
        for name, address in servers.items():
            settings = self.directory / f"{name}.yaml"
            text = _REGISTRY + (_LOGIN if name == "private" else "")
            settings.write_text(text.format(d=self.directory, address=address))
            command = [done.stdout.strip(), "serve", str(settings)]
            self._start(name, command if name == "registry" else self.inside(*command))

    def _until(self, what: str, condition: Callable[[], object], seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(RuntimeError, OSError):
                if condition():
                    return
            time.sleep(0.2)
        raise RuntimeError(f"not so after {seconds:.0f} s: {what}; logs: {self.directory}/*.log")

    def _save(self, images: Sequence[str]) -> Path:
        archive = self.directory / "images.tar"
        build = ["docker", "build", "--quiet", "--tag", self._pause, "-"]
        text = _PAUSE.format(image=images[0])
        subprocess.run(build, input=text, text=True, check=True, capture_output=True)
        self._shell(f"docker save -o {archive} {self._pause} {' '.join(images)}")
        return archive

    def _connect(self) -> None:
        self._shell(_HUB_NETWORK)
        for node in self.nodes:
            address = f"{_NETWORK}.{node}"
            self._shell(_NODE_NETWORK, node=node, name=self._name(node), address=address)
        for node in self.nodes:
            for other in self.nodes:
                if other != node:
                    route = f"172.30.{other}.0/24 via {_NETWORK}.{other}"
                    self._shell(f"ip -n {self._name(node)} route add {route}")

    def _write_accounts(self) -> None:
        rows = []
        files = {"admin": "kubeconfig", "runner": "kubeconfig-runner"}
        for user, file in files.items():
            token = secrets.token_hex(16)
            rows.append(f"{token},{user},{user}" + (",system:masters" if user == "admin" else ""))
            settings = _client_settings(self.directory / "ca.crt", token)
            (self.directory / file).write_text(json.dumps(settings))
        (self.directory / "tokens.csv").write_text("\n".join(rows) + "\n")


def _pod_network(node: int, state: Path) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": f"172.30.{node}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(state),
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge, ports]}


def _kubelet_settings(cgroup: str, authority: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # The controller manager waits 8 s for a node: rarer signs of life make nodes flap.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusReportFrequency": "2s",
        "nodeStatusUpdateFrequency": "2s",
        "podPidsLimit": 256,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "containerLogMaxSize": "1Mi",
        "containerLogMaxFiles": 2,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 0,
        "healthzPort": 0,
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "2%"},
        "evictionPressureTransitionPeriod": "5s",
        "imageGCHighThresholdPercent": 100,
    }


def _client_settings(authority: Path, token: str) -> dict[str, object]:
    cluster = {"server": f"https://{HUB}:6443", "certificate-authority": str(authority)}
    context = {"cluster": "lab", "user": "lab", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": context}],
        "current-context": "lab",
    }


def _printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def _in_namespace(name: str) -> set[int]:
    done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    return {int(pid) for pid in done.stdout.split()}


def _kill_all(find: Callable[[], set[int]]) -> None:
    for _ in range(20):
        found = find()
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)


def _check_machine() -> None:
    """Check that this machine can have a cluster; name what is missing."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    packages = {"ip": "iproute2", "nsenter": "util-linux", "openssl": "openssl", "sysctl": "procps",
                "iptables": "iptables", "containerd": "containerd", "ctr": "containerd",
                "runc": "runc", "docker": "docker.io", "dpkg-source": "dpkg-dev"}  # fmt: skip
    missing = {package for program, package in packages.items() if not shutil.which(program)}
    if missing:
        sys.exit(f"lab.py: install the packages {', '.join(sorted(missing))}")
    if os.geteuid():
        sys.exit("lab.py: a cluster needs root")


def _test(nodes: int, arguments: Sequence[str]) -> int:
    """Run pytest in the hub of a new cluster, of which nothing is left even if this is killed."""
    directory = Path(tempfile.mkdtemp(prefix="orchestrator-cluster-"))
    lab = Lab(directory, nodes=nodes)
    watch = [sys.executable, "-m", __spec__.name, "watch", str(directory)]
    watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
    assert watcher.stdin is not None
    try:
        lab.up([BASE_IMAGE])
        chosen = "cluster" if "--every-variant" in arguments else "cluster and not extra"
        command = lab.inside(sys.executable, "-m", "pytest", "-m", chosen, *arguments)
        return subprocess.run(command, env={**os.environ, LAB: str(directory)}).returncode
    finally:
        watcher.stdin.close()
        watcher.wait()


def _main(verb: str, *rest: str) -> int:
    _check_machine()
    if verb == "test":
        nodes = int(os.environ.get("ORCHESTRATOR_TEST_NODES", "3"))
        return _test(nodes, rest)
    lab = Lab(Path(rest[0]))
    if verb == "up":
        lab.up(rest[1:] or [BASE_IMAGE])
    elif verb == "kubectl":
        sys.stdout.write(lab.kubectl(*rest[1:]))
    elif verb == "inside":
        return subprocess.run(lab.inside(*rest[1:])).returncode
    elif verb == "watch":
        # The input ends with the process that started this one, however that ends.
        sys.stdin.read()
        lab.down()
    elif verb == "down":
        lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
