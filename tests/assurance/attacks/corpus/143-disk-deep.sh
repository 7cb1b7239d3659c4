# Fills the disk below a path too long to name.
#: options --disk 100m --inodes 20000 --timeout-per-worker 60
#: group limits
#: ends failed disk
#: within 55
exec python3 -c 'import os, time
for level in range(60): os.mkdir("d" * 100); os.chdir("d" * 100)
for n in range(50):
    with open(f"fill.{n}", "wb") as file: file.write(bytes(10 << 20))
time.sleep(30)'
