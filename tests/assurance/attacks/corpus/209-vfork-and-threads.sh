# Waits where few signals arrive: in vfork, in a thread that outlives the first, on a FIFO.
#: options --timeout-per-worker 4 --grace 1
#: ends timeout timeout
#: within 60
mkfifo /tmp/never; (cat /tmp/never) &
exec python3 -c 'import ctypes, os, signal, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
libc = ctypes.CDLL(None)
threading.Thread(target=lambda: [time.sleep(1) for _ in range(1000)]).start()
os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
libc.syscall(60, 0)  # ends the first thread alone'
