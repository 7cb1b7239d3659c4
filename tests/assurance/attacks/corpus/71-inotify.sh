# Uses up inotify instances, which count per user of the host, and open files.
#: most files 65536
python3 -c 'import ctypes, os
count = 0
while count < int(os.environ.get("MOST_INOTIFY", 100000)) and ctypes.CDLL(None).inotify_init() >= 0: count += 1
held = []
try:
    while len(held) < 200000: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
print(f"REPORT inotify={count}"); print(f"REPORT files={count + len(held)}")'
