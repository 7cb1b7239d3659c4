# Writes as fast as possible into work tree and store from SIGTERM until SIGKILL.
#: options --timeout-per-worker 4 --grace 1
#: ends timeout timeout
#: within 60
exec python3 -c 'import os, signal, time
def write(*_):
    n = 0
    while True:
        n += 1
        os.makedirs(f"parting/{n}", exist_ok=True)
        for path in (f"parting/{n}/f", f"/git/objects/{n % 256:02x}", "a.txt", "honest.txt.new"):
            try:
                with open(path, "w") as file: file.write(str(n))
            except OSError: pass
signal.signal(signal.SIGTERM, write)
while True: time.sleep(1)'
