# Uses up pseudoterminals and asynchronous requests, which the kernel counts for the machine.
#: never taken=aio
#: always tried=yes
python3 -c 'import ctypes, os
libc = ctypes.CDLL(None); context = ctypes.c_ulong(0)
number = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
if libc.syscall(number, 64, ctypes.byref(context)) == 0: print("REPORT taken=aio")
found = []
try:
    while len(found) < 64: found.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError: pass
print(f"REPORT terminals={len(found)}"); print("REPORT tried=yes")'
