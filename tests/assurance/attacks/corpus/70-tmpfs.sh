# Fills every tmpfs with data and with inodes.
#: ends failed oom
#: most mib 300
#: most inodes 250000
python3 -c 'n = 0
import os; os.mkdir("/tmp/i")
try:
    while n < 300000: open(f"/tmp/i/{n}", "w").close(); n += 1
except OSError: pass
print(f"REPORT inodes={n}", flush=True)'
rm -rf /tmp/i
for directory in $(awk '$3 == "tmpfs" {print $2}' /proc/mounts); do
  dd if=/dev/zero of="$directory/fill" bs=1M count=600
  [ -f "$directory/fill" ] && report "mib=$(($(stat -c %s "$directory/fill") >> 20))"
done
exit 9
