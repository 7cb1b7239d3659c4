# Runs more busy loops than it has CPUs.
#: most hundredths 140
python3 -c 'import os, time
started = time.time()
for number in range(4):
    if os.fork() == 0:
        while time.time() < started + 3: pass
        os._exit(0)
for number in range(4): os.wait()
used = os.times()
print(f"REPORT hundredths={round((used.children_user + used.children_system) / 3 * 100)}")'
