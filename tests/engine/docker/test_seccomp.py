"""Tests of the system calls that containers may make: forbidden sockets are only refused.

No socket that a container should not have is bound or connected here.
"""

import json
import platform
import secrets

import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.seccomp import profile
from orchestrator.engine.interface.spec import Egress
from tests.support.containers import Run, Starter, finish

pytestmark = pytest.mark.docker

FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16, "packet": 17, "alg": 38, "vsock": 40}
OPEN = {"unix", "inet", "inet6", "netlink"}
# System calls by number: `socket.socket` cannot set the upper half of an argument.
SOCKETS = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
SOCKET, PAIR, URING = {"x86_64": (41, 53, 425), "aarch64": (198, 199, 425)}[os.uname().machine]
def call(number, *arguments):
    ctypes.set_errno(0)
    made = libc.syscall(number, *map(ctypes.c_ulong, arguments))
    return "made" if made >= 0 else errno.errorcode[ctypes.get_errno()]
SETUP = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
context = ctypes.c_ulong(0)
found = {"io_uring": call(URING, 1, 0), "io_setup": call(SETUP, 10, ctypes.addressof(context))}
found |= {f"protocol {number}": call(SOCKET, 16, 3, number) for number in range(32)}
found["protocol high"] = call(SOCKET, 16, 3, 15 | 1 << 32)
for name, family in json.loads(sys.argv[1]).items():
    for kind in (1, 2, 3, 5):
        found[f"{name} {kind}"] = call(SOCKET, family, kind, 0)
        found[f"{name} {kind} high"] = call(SOCKET, family | 7 << 32, kind, 0)
pair = (ctypes.c_int * 2)()
for name in ("unix", "vsock"):
    found[f"pair {name}"] = call(PAIR, json.loads(sys.argv[1])[name], 1, 0, ctypes.addressof(pair))
print(json.dumps(found))
"""
# Make a 32-bit system call, given its number and two arguments, from a 64-bit program.
OLD = """
import ctypes, json, mmap, sys
MAP_32BIT = 0x40
flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT, mmap.PROT_READ | mmap.PROT_WRITE
page = mmap.mmap(-1, 4096, flags, access | mmap.PROT_EXEC)
page.write(bytes.fromhex("53 89f8 89f3 89d1 31d2 cd80 5b c3"))
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
enter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(at)
found = {}
for name, family in json.loads(sys.argv[1]).items():
    words = (ctypes.c_int * 3).from_buffer(page, 1024)
    words[:] = (family, 2, 0)
    found[name] = [enter(102, 1, at + 1024), enter(359, family, 2)]
found["io_setup"] = enter(245, 10, at + 2048)
print(json.dumps(found))
"""


# Commands of `fcntl` on a file of the caller, and the same with bits that the kernel ignores.
LEASES = """
import ctypes, errno, fcntl, json, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
FCNTL = {"x86_64": 72, "aarch64": 25}[os.uname().machine]
open("/dev/shm/file", "w").close()
file, memory = os.open("/dev/shm/file", os.O_RDONLY), os.memfd_create("m", os.MFD_ALLOW_SEALING)
def call(handle, command, value):
    ctypes.set_errno(0)
    made = libc.syscall(FCNTL, handle, ctypes.c_ulong(command), ctypes.c_ulong(value))
    return "made" if made >= 0 else errno.errorcode[ctypes.get_errno()]
found = {f"lease {high}": call(file, 1024 | high << 32, 0) for high in (0, 1)}
found |= {f"delegation {high}": call(file, 1040 | high << 32, 0) for high in (0, 1)}
found |= {"unknown": call(file, 64, 0), "duplicate": call(file, 1030, 0)}
found |= {"flags": call(file, 3, 0), "high": call(file, 1 << 32 | 3, 0)}
found |= {"get lease": call(file, 1025, 0), "seals": call(memory, 1033, 2)}
found |= {"pipe": call(os.pipe()[1], 1031, 4096), "size": call(os.pipe()[1], 1032, 0)}
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.lockf(os.open("/dev/shm/file", os.O_RDWR), fcntl.LOCK_EX)
print(json.dumps(found))
"""


def found(run: Run, code: str) -> dict[str, object]:
    status, stdout, stderr = run("python3", "-c", code, json.dumps(FAMILIES))
    assert status.exit_code == 0, stderr
    result: dict[str, object] = json.loads(stdout)
    return result


def test_only_four_socket_families_are_allowed(docker_run: Run) -> None:
    """Also with bits in the upper half of the argument, which the kernel ignores."""
    said = found(docker_run, SOCKETS)
    for name in set(FAMILIES) - OPEN:
        refused = {key: value for key, value in said.items() if key.startswith(f"{name} ")}
        assert len(refused) == 8
        assert set(refused.values()) == {"EPERM"}, refused
    for name, kind in (("unix", 1), ("unix", 2), ("inet", 1), ("inet6", 2), ("netlink", 3)):
        assert said[f"{name} {kind}"] == "made"
    assert (said["pair unix"], said["pair vsock"]) == ("made", "EPERM")
    # Contexts of io_setup would count against a limit of the whole machine, fs.aio-max-nr.
    assert (said["io_uring"], said["io_setup"]) == ("ENOSYS", "ENOSYS")


def test_only_three_netlink_protocols_are_allowed(docker_run: Run) -> None:
    """Other protocols include the kernel's messages about devices of the machine."""
    said = found(docker_run, SOCKETS)
    route, audit = 0, 9
    assert {n for n in range(32) if said[f"protocol {n}"] == "made"} == {route, 4, 12}
    assert said["protocol high"] == "EPERM"
    # Programs such as useradd take this error for a kernel without auditing.
    assert said[f"protocol {audit}"] == "EPROTONOSUPPORT"


def test_no_lease_is_taken_on_a_file(docker_run: Run) -> None:
    """Others would wait for the worker when they open the file: the user's git, for its packs."""
    said = found(docker_run, LEASES)
    refused = {name for name, answer in said.items() if answer == "EPERM"}
    assert refused == {"lease 0", "lease 1", "delegation 0", "delegation 1", "unknown"}
    assert {answer for name, answer in said.items() if name not in refused} == {"made"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls of another kind of machine")
def test_32_bit_calls_are_filtered(docker_run: Run) -> None:
    """`socketcall` is refused; a direct 32-bit call is treated like a 64-bit call."""
    said = found(docker_run, OLD)
    eperm, enosys = -1, -38
    assert said["vsock"] == said["alg"] == said["packet"] == [enosys, eperm]
    through, direct = said["inet"]  # type: ignore[misc]
    assert through == said["io_setup"] == enosys
    assert direct >= 0


def test_profile_applies_to_services_guards_and_entered_commands(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str]
) -> None:
    """Guards need netlink, and commands that are entered later are filtered too."""
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    egress = Egress(image=docker_start.spec("true").image)
    container = docker_start("sleep", "300", network=network, egress=egress)
    code = "import socket; socket.socket(40, 1)"
    entered = docker_engine.enter(container.id, ("python3", "-c", code))
    said = b"".join(chunk.data for chunk in entered.output())
    assert entered.wait() == 1
    assert b"Operation not permitted" in said
    client = docker_engine._client
    ours = client.containers(filters={"label": [f"{k}={v}" for k, v in labels.items()]})
    assert len(ours) == 2, "the worker's container, and the guard of its network"
    for one in ours:
        told = client.inspect_container(one["Id"])["HostConfig"]["SecurityOpt"]
        assert f"seccomp={profile()}" in told


def test_profile_is_omitted_if_the_daemon_cannot_filter(
    docker_engine: DockerEngine, docker_start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon refuses a profile that its kernel cannot load."""
    info = docker_engine._info()
    monkeypatch.setattr(docker_engine, "_info", lambda: {**info, "SecurityOptions": []})
    assert not docker_engine.check(images=(), runtime=None).seccomp
    docker_engine.__dict__.pop("_dialect", None)
    container = docker_start("sleep", "300")
    host = docker_engine._client.inspect_container(container.id)["HostConfig"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    container.kill("SIGKILL")
    assert finish(container)[0].exit_code == 137
    docker_engine.__dict__.pop("_dialect", None)
