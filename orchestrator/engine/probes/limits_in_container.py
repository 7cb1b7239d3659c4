"""Find out, inside a container, which limits are enforced there: print what was seen as JSON.

The arguments are the limits that the container was created with, by name; what is not named is not
tested. The limits of processes and memory are tested last and have lines of their own, because some
kernels end the whole container at these limits.

The program is passed to a container as text, so it imports only the standard library.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_PATIENCE = 20
"""Seconds after which the kernel ends this program."""
_CGROUPS = Path("/sys/fs/cgroup")
_IO_URING_SETUP = 425
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that belong to nobody (RFC 5737, RFC 3849). Only routes are looked up; nothing is sent.
"""
_MORE = 8
_MIB = 1024**2
_MORE_MEMORY = 64 * _MIB


def main(*limits: str) -> None:
    """Print what is enforced; each limit is given as `NAME=NUMBER`."""
    signal.alarm(_PATIENCE)
    asked = {name: float(number) for name, _, number in (text.partition("=") for text in limits)}
    _tell(
        _status,
        _machine,
        lambda: {"cpus": _cpus(asked["cpus"])},
        lambda: {"swap": _swap()},
        lambda: {"open_files": _open_files(int(asked["open_files"]))},
        lambda: {"tmp": _tmp(int(asked["tmp"]))},
        lambda: {"tmp_inodes": _tmp_inodes(int(asked["tmp_inodes"]))},
        lambda: {"read_only_root": _read_only_root()},
        lambda: {"network": _network()},
    )
    _tell(lambda: {"pids": _pids(int(asked["pids"]))})
    _tell(lambda: {"memory": _memory(int(asked["memory"]))})


def _tell(*questions: Callable[[], Mapping[str, object]]) -> None:
    """Print one line of answers; what cannot be found out is left out."""
    seen: dict[str, object] = {}
    for question in questions:
        with suppress(OSError, ValueError, KeyError):
            seen |= {name: said for name, said in question().items() if said is not None}
    sys.stdout.write(f"{json.dumps(seen)}\n")
    sys.stdout.flush()


def _status() -> dict[str, object]:
    """Return what the kernel says of this process; names that it does not tell are left out."""
    lines = (line.partition(":") for line in Path("/proc/self/status").read_text().split("\n"))
    told = {name: value.strip() for name, _, value in lines}
    seen: dict[str, object] = {}
    if "CapEff" in told:
        every = (told.get(name, "0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        seen["capabilities"] = not any(int(given, 16) for given in every)
    if "NoNewPrivs" in told:
        seen["no_new_privileges"] = told["NoNewPrivs"] == "1"
    if "Seccomp" in told and _sees_machine():
        seen["seccomp"] = told["Seccomp"] == "2" and _refuses_io_uring()
    return seen


def _refuses_io_uring() -> bool:
    system = ctypes.CDLL(None, use_errno=True)
    # Without parameters, a kernel that would allow the call reports a bad address.
    made = system.syscall(_IO_URING_SETUP, 1, None)
    return made < 0 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)


def _machine() -> dict[str, object]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    seen: dict[str, object] = {"kernel": os.uname().release}
    with suppress(OSError):
        seen["boot"] = boot.read_text().strip()
    return seen


def _sees_machine() -> bool:
    """Return whether the kernel of this program is the one that limits the container.

    A kernel that is itself a program, such as gVisor's, has control groups without these files; the
    machine's kernel limits that program, and shows nothing of it in here.
    """
    return _is_unified() or any(_CGROUPS.glob("*/cgroup.clone_children"))


def _number(*names: str) -> str | None:
    """Return the content of the first file of the control group that exists."""
    for name in names if _sees_machine() else ():
        with suppress(OSError):
            return (_CGROUPS / name).read_text().strip()
    return None


def _cpus(asked: float) -> bool | None:
    both = _number("cpu.max")
    if both is None:
        quota, period = _number("cpu/cpu.cfs_quota_us"), _number("cpu/cpu.cfs_period_us")
        if quota is None or period is None:
            return False if _is_unified() else None
        both = f"{quota} {period}"
    quota, period = both.split()
    return quota not in ("max", "-1") and int(quota) <= asked * int(period) * 1.01


def _swap() -> bool | None:
    """Return whether the kernel keeps processes of the container out of swap space."""
    limit = _number("memory.swap.max")
    if limit is not None:
        return limit == "0"
    both, memory = (_number(f"memory/memory{name}.limit_in_bytes") for name in (".memsw", ""))
    if both is not None and memory is not None:
        return int(both) <= int(memory)
    if not _sees_machine():
        return None
    if "SwapTotal:              0 kB" in Path("/proc/meminfo").read_text():
        return True
    return False if memory is not None or _is_unified() else None


def _is_unified() -> bool:
    return (_CGROUPS / "cgroup.controllers").exists()


def _pids(limit: int) -> bool:
    children = []
    try:
        for _ in range(limit + _MORE):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError:
        return True
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return False


def _open_files(limit: int) -> bool:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard != resource.RLIM_INFINITY and hard <= limit


def _tmp(size: int) -> bool:
    block = bytes(_MIB)
    with _scratch() as place, open(place / "large", "wb", buffering=0) as file:  # noqa: PTH123
        try:
            written = sum(file.write(block) for _ in range(size // _MIB + 1))
        except OSError as error:
            return error.errno == errno.ENOSPC
        # The last write may be short.
        return written <= size


def _tmp_inodes(limit: int) -> bool:
    with _scratch() as place:
        try:
            for number in range(limit + 1):
                (place / str(number)).touch()
        except OSError as error:
            return error.errno == errno.ENOSPC
    return False


@contextmanager
def _scratch() -> Iterator[Path]:
    place = Path("/tmp/limits")  # noqa: S108 - the container's own
    place.mkdir()
    try:
        yield place
    finally:
        for path in place.iterdir():
            path.unlink()
        place.rmdir()


def _read_only_root() -> bool:
    root = Path("/").stat().st_dev
    for place in filter(Path.is_dir, (Path("/var/tmp"), Path("/"))):  # noqa: S108
        # Some engines mount a file system in memory there, which is limited as memory.
        if place.stat().st_dev != root:
            continue
        path = place / "orchestrator-limits"
        try:
            path.touch(exist_ok=False)
        except OSError as error:
            if error.errno != errno.EROFS and not os.statvfs(place).f_flag & os.ST_RDONLY:
                return False
        else:
            path.unlink()
            return False
    return True


def _network() -> bool:
    """Return whether there is no way out: no interface but `lo` is up, and no address has a route.

    A kernel may show tunnels in every network, which nobody has configured.
    """
    for _, name in socket.if_nameindex():
        flags = Path("/sys/class/net", name, "flags")
        is_up = int(flags.read_text(), 16) & 1 if flags.exists() else True
        if is_up and name != "lo":
            return False
    return not any(_has_route(family, name) for family, name in _ELSEWHERE.items())


def _has_route(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as lookup:
            lookup.connect((address, 9))
    except OSError:
        return False
    return True


def _memory(limit: int) -> bool:
    """Return whether the kernel kills a process that needs more memory than the container has."""
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        size = limit + _MORE_MEMORY
        with mmap.mmap(-1, size) as memory:
            for place in range(0, size, mmap.PAGESIZE):
                memory[place] = 1
        os._exit(0)
    _, status = os.waitpid(child, 0)
    # protection: missing-limit-of-memory-is-noticed
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(*sys.argv[1:])
