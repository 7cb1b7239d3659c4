# Fills the disk below a path that is too long to name.
#: options --disk 100m --inodes 5000 --timeout-per-worker 120
#: group limits
#: ends failed disk
#: within 110
exec python3 -c 'import os, time
for level in range(60): os.mkdir("d" * 100); os.chdir("d" * 100)
for n in range(50):
    with open(f"fill.{n}", "wb") as file: file.write(bytes(10 << 20))
time.sleep(90)'
