# Makes forbidden system calls as 32-bit and x32 calls, and with bits that the kernel ignores.
#: never allowed=
#: always tried=yes
python3 - <<'END'
import ctypes, mmap, os
if os.uname().machine == "x86_64":
    libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
    wide = lambda number, *rest: libc.syscall(*map(ctypes.c_ulong, (number, *rest)))
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)  # MAP_32BIT
    page.write(bytes.fromhex("53 89f8 89f3 89ce 89d1 89f2 cd80 5b c3"))  # int 0x80
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    narrow = ctypes.CFUNCTYPE(*[ctypes.c_int] * 5)(at)
    args = (ctypes.c_ulonglong * 11).from_buffer(page, 1024)  # of clone3: flags, and the signal
    args[:] = (0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    HIGH, X32, MINE = 1 << 32, 0x40000000, at + 2048
    calls = {
        "clone3": lambda: wide(435, at + 1024, 88), "clone": lambda: wide(56, 0x10000000 | 17, 0, 0, 0, 0),
        "clone-net-high": lambda: wide(56, HIGH | 0x40000000 | 17, 0, 0, 0, 0),
        "unshare-high": lambda: wide(272, HIGH | 0x10000000), "setns": lambda: wide(308, 0, 0),
        "personality-high": lambda: wide(135, HIGH | 0x40000), "io_setup": lambda: wide(206, 10, MINE),
        "keyctl": lambda: wide(250, 0, -3), "pidfd_getfd": lambda: wide(438, os.pidfd_open(1), 0, 0),
        "open_tree": lambda: wide(428, -100, at, 0), "fsopen": lambda: wide(430, at, 0),
        "x32-uring": lambda: wide(X32 | 425, 1, MINE), "x32-vsock": lambda: wide(X32 | 41, 40, 1, 0),
        "x32-unshare": lambda: wide(X32 | 272, 0x10000000), "32-unshare": lambda: narrow(310, 0x10000000, 0, 0),
        "32-clone": lambda: narrow(120, 0x10000000 | 17, 0, 0), "32-clone3": lambda: narrow(435, at + 1024, 88, 0),
        "32-keyctl": lambda: narrow(288, 0, -3, 0), "32-userfaultfd": lambda: narrow(374, 0, 0, 0),
        "32-io_setup": lambda: narrow(245, 10, MINE, 0), "32-uevents": lambda: narrow(359, 16, 3, 15),
        "32-pair": lambda: narrow(360, 40, 1, 0), "32-vm86": lambda: narrow(166, 1, 0, 0),
        "32-personality": lambda: narrow(136, 0x40000, 0, 0), "32-iopl": lambda: narrow(110, 3, 0, 0),
        "32-mount": lambda: narrow(21, at, at, at), "32-bpf": lambda: narrow(357, 0, at, 48),
        "32-uring": lambda: narrow(425, 1, MINE, 0), "32-uselib": lambda: narrow(86, at, 0, 0),
    }
    for name, call in calls.items():
        child = os.fork()
        if child == 0:
            made = call()
            os._exit(0 if made >= 0 else 1)
        if os.waitpid(child, 0)[1] == 0: print(f"REPORT allowed={name}")
print("REPORT tried=yes")
END
