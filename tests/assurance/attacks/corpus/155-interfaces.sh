# Tries to change its network: interfaces, routes, marks, packet filter, neighbours.
#: options --ports 8000 --network open
#: never changed=
#: always tried=yes
python3 - <<'END'
import fcntl, socket, struct
SO_MARK, SO_BINDTODEVICE, IP_TRANSPARENT, SO_BROADCAST_ROUTE = 36, 25, 19, 5
name = next((n for _, n in socket.if_nameindex() if n != "lo"), "lo").encode()
address = struct.pack("<HH4s8x", socket.AF_INET, 0, socket.inet_aton("10.99.99.99"))
s = socket.socket()
attempts = {
    "down": lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", name, 0)),
    "address": lambda: fcntl.ioctl(s, 0x8916, struct.pack("16s16s", name, address)),
    "hardware": lambda: fcntl.ioctl(s, 0x8924, struct.pack("16sH14s", name, 1, b"\2abcde")),
    "neighbour": lambda: fcntl.ioctl(s, 0x8955, bytes(68)),
    "route": lambda: fcntl.ioctl(s, 0x890B, bytes(120)),
    "mark": lambda: s.setsockopt(socket.SOL_SOCKET, SO_MARK, 1),
    "transparent": lambda: s.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1),
    "iptables": lambda: s.setsockopt(socket.SOL_IP, 64, bytes(100)),
}
for what, attempt in attempts.items():
    try: attempt(); print(f"REPORT changed={what}")
    except OSError: pass
try:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netfilter:  # flush every table
        body = struct.pack("=BBH", 0, 0, 0)
        inner = struct.pack("=IHHII", 16 + len(body), (10 << 8) | 2, 5, 2, 0) + body
        begin = struct.pack("=IHHIIBBH", 20, 0x10, 1, 1, 0, 0, 0, 10 << 8)
        end = struct.pack("=IHHIIBBH", 20, 0x11, 1, 3, 0, 0, 0, 10 << 8)
        netfilter.send(begin + inner + end)
        netfilter.settimeout(1)
        answer = netfilter.recv(65536)
        if struct.unpack_from("=i", answer, 16)[0] == 0: print("REPORT changed=nftables")
except OSError: pass
print("REPORT tried=yes")
END
