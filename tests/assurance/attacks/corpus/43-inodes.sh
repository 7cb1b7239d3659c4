# As many files as there may be.
#: options --disk 100m --inodes 20000 --timeout-per-worker 60
#: group limits
#: ends failed inodes
#: within 55
exec python3 -c 'import os, time
for n in range(100):
    os.mkdir(f"many-{n}")
    for m in range(1000): open(f"many-{n}/{m}", "w").close()
    time.sleep(0.1)
time.sleep(30)'
