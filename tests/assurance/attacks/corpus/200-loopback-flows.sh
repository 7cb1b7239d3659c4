# Fills the kernel's connection table with flows to itself, over IPv4 and IPv6.
#: options --ports 8000 --network open
#: most entries 1500
python3 -c 'import socket
for family, place in ((2, "127.0.0.1"), (2, "127.1.2.3"), (10, "::1")):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        for port in range(1, 20000):
            try: s.sendto(b"x", (place, port))
            except OSError: pass
try: entries = int(open("/proc/sys/net/netfilter/nf_conntrack_count").read())
except OSError: entries = 0  # Nobody counts connections here.
print(f"REPORT entries={entries}")'
