# Stops the container's first process with ptrace, and itself with SIGSTOP, when asked to end.
#: options --timeout-per-worker 4 --grace 1
#: ends timeout timeout
#: within 60
exec python3 -c 'import ctypes, os, signal, time
libc = ctypes.CDLL(None)
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
SEIZE, INTERRUPT = 0x4206, 0x4207
libc.ptrace(SEIZE, 1, 0, 0); libc.ptrace(INTERRUPT, 1, 0, 0)
if os.fork() == 0: os.kill(os.getppid(), signal.SIGSTOP)
while True: time.sleep(1)'
