# Tries to raise its priority: scheduling, real time, locked memory, order of out-of-memory kills.
#: never raised=
#: always tried=yes
python3 - <<'END'
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def lower(value):
    with open("/proc/self/oom_score_adj", "w") as file: file.write(str(value))
def limit(what):
    hard = resource.getrlimit(what)[1]
    if hard == resource.RLIM_INFINITY: raise OSError
    resource.setrlimit(what, (hard + 1, hard + 1))
def ioprio(): # class "real time"
    if libc.syscall(251, 1, 0, 1 << 13 | 0) != 0: raise OSError
attempts = {
    "oom": lambda: lower(int(open("/proc/self/oom_score_adj").read()) - 1), "nice": lambda: os.nice(-1),
    "fifo": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), "ioprio": ioprio,
    "files": lambda: limit(resource.RLIMIT_NOFILE), "core": lambda: limit(resource.RLIMIT_CORE),
    "locked": lambda: limit(resource.RLIMIT_MEMLOCK),
    "affinity": lambda: os.sched_setaffinity(0, range(4096)) if len(os.sched_getaffinity(0)) > 4096 else 1 / 0,
}
for name, attempt in attempts.items():
    try: attempt(); print(f"REPORT raised={name}")
    except (OSError, ValueError, ZeroDivisionError): pass
print("REPORT tried=yes")
END
