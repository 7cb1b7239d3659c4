# Crashes with much memory, so that the kernel may write a core file or run a program of the host.
#: most core 0
report "core=$(ulimit -c)"
for n in 1 2 3; do python3 -c 'import os, signal
held = bytearray(50 << 20)
os.kill(os.getpid(), signal.SIGSEGV)'; done
for file in core core.*; do [ -f "$file" ] && report "core=$(stat -c %s "$file")"; done
true
