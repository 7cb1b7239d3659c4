# Tries protocols beside TCP: datagrams, raw packets, IPv6, multicast, fragments.
#: options --ports 8000 --network open
#: never (reached|sent|raw)=
#: always tried=yes
python3 -c 'import socket, sys
gateway, port = sys.argv[1], int(sys.argv[2])
def attempt(what, family, kind, place, protocol=0, options=()):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(1)
            for option in options: s.setsockopt(*option)
            s.sendto(b"x", place)
            if what == "sent": print(f"REPORT sent={place[0]}")
            elif b"CANARY" in s.recv(100): print(f"REPORT reached={what}")
    except OSError: pass
index = next((n for n, name in socket.if_nameindex() if name != "lo"), 0)
attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, (gateway, port))
attempt("udp-lite", socket.AF_INET, socket.SOCK_DGRAM, (gateway, port), 136)
attempt("sent", socket.AF_INET6, socket.SOCK_DGRAM, ("ff02::1", port, 0, index))
attempt("sent", socket.AF_INET6, socket.SOCK_DGRAM, (f"::ffff:{gateway}", port))
attempt("sent", socket.AF_INET, socket.SOCK_DGRAM, ("255.255.255.255", port), 0,
  [(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)])
attempt("sent", socket.AF_INET, socket.SOCK_DGRAM, ("224.0.0.1", port))
attempt("reply", socket.AF_INET, socket.SOCK_STREAM, (gateway, port), 0,
  [(socket.SOL_IP, socket.IP_TTL, 64)])
for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (17, 3, 8), (10, 3, 58)):
    try:
        with socket.socket(family, kind, protocol): print(f"REPORT raw={family}-{protocol}")
    except OSError: pass
print("REPORT tried=yes")' "$GATEWAY" "$PORT"
