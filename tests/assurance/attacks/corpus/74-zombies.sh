# Creates orphans that end and count against the process limit until they are reaped.
#: most zombies 20
python3 -c 'import os, time
for number in range(300):
    if os.fork() == 0:
        if os.fork() == 0: time.sleep(0.02)
        os._exit(0)
    os.wait()
time.sleep(1)
states = [open(f"/proc/{n}/stat").read().rsplit(")")[1].split()[0] for n in os.listdir("/proc") if n.isdigit()]
print(f"REPORT zombies={states.count(chr(90))}")'
