# Uses as much memory as possible, and the same in /dev/shm.
#: ends failed oom
#: most mib 256
#: most shm 300
dd if=/dev/zero of=/dev/shm/x bs=1M count=600
report "shm=$(($(stat -c %s /dev/shm/x) >> 20))"; rm /dev/shm/x
python3 -c 'held = []
for step in range(1, 41):
    held.append(b"x" * (16 << 20)); print(f"REPORT mib={step * 16}", flush=True)'
exit 9
