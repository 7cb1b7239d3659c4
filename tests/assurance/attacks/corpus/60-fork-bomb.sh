# Starts as many processes as possible.
#: ends failed pids
#: most processes 128
exec python3 -c 'import os, time
count = 0
while time.sleep(0.001) is None:
    try:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        count += 1
    except OSError:
        print(f"REPORT processes={count}", flush=True); time.sleep(20)'
