# Tries other ways to the host: echo requests, MPTCP, UDP-Lite, Fast Open, source routes, fragments.
#: options --ports 8000 --network open
#: never (reached|sent)=
#: always tried=yes
python3 - "$GATEWAY" "$PORT" <<'END'
import socket, sys
gateway, port = sys.argv[1], int(sys.argv[2])
INET, INET6, STREAM, DGRAM = 2, 10, 1, 2
MPTCP, LITE, ICMP, ICMP6, FASTOPEN = 262, 136, 1, 58, 0x20000000
def attempt(what, family, kind, protocol, attack):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(1); attack(s)
            if b"CANARY" in s.recv(200): print(f"REPORT reached={what}")
    except OSError: pass
def echo(s):
    s.sendto(b"\x08\0\0\0\0\0\0\1CANARY", (gateway, 0))
def echo6(s):
    s.sendto(b"\x80\0\0\0\0\0\0\1CANARY", ("ff02::1", 0, 0, 2)); print("REPORT sent=echo6")
def route(kind):
    def attack(s):  # loosely or strictly by way of the host itself
        hops = socket.inet_aton(gateway) * 2
        s.setsockopt(socket.SOL_IP, socket.IP_OPTIONS, bytes([kind, 3 + len(hops), 4]) + hops + b"\0")
        s.sendto(b"x", (gateway, port))
    return attack
def large(s):
    s.setsockopt(socket.SOL_IP, 10, 0); s.sendto(b"x" * 60000, (gateway, port))
    print("REPORT sent=fragments")
def source(s):
    s.bind(("127.0.0.1", 0)); s.sendto(b"x", (gateway, port)); print("REPORT sent=from-loopback")
attempt("echo", INET, DGRAM, ICMP, echo)
attempt("echo6", INET6, DGRAM, ICMP6, echo6)
attempt("mptcp", INET, STREAM, MPTCP, lambda s: s.connect((gateway, port)))
attempt("lite", INET, DGRAM, LITE, lambda s: s.sendto(b"x", (gateway, port)))
attempt("fast-open", INET, STREAM, 0, lambda s: s.sendto(b"x", FASTOPEN, (gateway, port)))
attempt("loose", INET, DGRAM, 0, route(131))
attempt("strict", INET, DGRAM, 0, route(137))
attempt("large", INET, DGRAM, 0, large)
attempt("source", INET, DGRAM, 0, source)
attempt("zero", INET, STREAM, 0, lambda s: s.connect(("0.0.0.0", port)))
attempt("mapped", INET6, STREAM, 0, lambda s: s.connect((f"::ffff:{gateway}", port)))
attempt("compatible", INET6, STREAM, 0, lambda s: s.connect((f"::{gateway}", port)))
attempt("nat64", INET6, STREAM, 0, lambda s: s.connect((f"64:ff9b::{gateway}", port)))
print("REPORT tried=yes")
END
