# Creates as many files as possible.
#: options --disk 100m --inodes 5000 --timeout-per-worker 120
#: group limits
#: ends failed inodes
#: within 110
exec python3 -c 'import os, time
for n in range(1000):
    os.mkdir(f"many-{n}")
    for m in range(200): open(f"many-{n}/{m}", "w").close()
    time.sleep(0.1)
time.sleep(90)'
