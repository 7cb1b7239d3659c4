# Reads about the host in /proc and /sys: kernel addresses and messages, processes, containers.
#: never leak=
#: always tried=yes
python3 - <<'END'
import glob, os, re
def text(path, size=1 << 20):
    try:
        with open(path, "rb", buffering=0) as file: return file.read(size) or b""
    except OSError: return b""
for path in ("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/proc/keys", "/proc/timer_list", "/proc/sched_debug",
             "/proc/vmallocinfo", "/proc/slabinfo", "/proc/pagetypeinfo", "/proc/self/pagemap_of_others"):
    if text(path, 4096).strip(b"\0\n"): print(f"REPORT leak={path}")
if re.search(rb"^0*[1-9a-f][0-9a-f]* ", text("/proc/kallsyms"), re.M): print("REPORT leak=kallsyms")
if re.search(rb"^ *0*[1-9a-f][0-9a-f]*-", text("/proc/iomem"), re.M): print("REPORT leak=iomem")
for folder in ("/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf",
               "/proc/acpi", "/proc/scsi"):
    try:
        if os.listdir(folder): print(f"REPORT leak={folder}")
    except OSError: pass
if len(glob.glob("/proc/[0-9]*")) > 20: print("REPORT leak=processes")
if text("/proc/net/unix").count(b"\n") > 5: print("REPORT leak=sockets")
if set(os.listdir("/sys/class/net")) - {"lo", "eth0"}: print("REPORT leak=interfaces")
if any(os.path.basename(p) not in ("",) for p in glob.glob("/sys/fs/cgroup/*/docker/*")): print("REPORT leak=cgroups")
for name in glob.glob("/proc/[0-9]*/root/proc/1/environ"):
    if b"DOCKER" in text(name): print("REPORT leak=environment")
if glob.glob("/sys/block/*/loop/backing_file"): print("REPORT leak=loop-files")
print("REPORT tried=yes")
END
