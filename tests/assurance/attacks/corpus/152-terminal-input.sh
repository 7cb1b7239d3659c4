# Writes input into every terminal that it finds, and reads from them.
#: never typed=
#: always tried=yes
python3 - <<'END'
import fcntl, os, termios
for path in (0, 1, 2, "/dev/tty", "/dev/console", "/proc/1/fd/0", "/proc/1/fd/2"):
    try:
        descriptor = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NOCTTY)
        for character in b"touch PWNED\n": fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([character]))
        print(f"REPORT typed={path}")
    except OSError: pass
print("REPORT tried=yes")
END
timeout 2 cat > /dev/null
true
