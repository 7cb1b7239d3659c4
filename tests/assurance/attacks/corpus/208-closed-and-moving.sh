# Closes its output and forks endlessly into new sessions, so that its process id keeps changing.
#: options --timeout-per-worker 4 --grace 1
#: ends timeout timeout
#: within 60
exec python3 -c 'import os, signal, time
os.closerange(0, 64)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT): signal.signal(number, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork():
    while True: time.sleep(1)
while True:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(0.01)'
