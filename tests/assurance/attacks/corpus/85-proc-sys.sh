# Tries to change files in /proc and /sys that affect the host's kernel.
#: never (writable|readable|cgroup)=
for path in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/panic_on_oom \
  /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger /proc/sys/fs/binfmt_misc/register \
  /sys/kernel/uevent_helper /sys/fs/cgroup/memory/release_agent /sys/fs/cgroup/cgroup.procs \
  /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/power/state; do
  [ -f $path ] && (: >> $path) && report writable=$path
done
mkdir /tmp/cg; mount -t cgroup -o memory none /tmp/cg && report cgroup=mounted
for path in /proc/kcore /proc/keys /proc/timer_list /dev/mem /dev/vda /dev/sda; do
  [ -n "$(head -c 16 $path | tr -d '\0')" ] && report readable=$path
done
true
