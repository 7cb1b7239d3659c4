# Looks for services of the host: on its bridge, by the engine's host name, over TCP and UDP.
#: options --ports 8000 --network open
#: never reached=
#: always tried=5
python3 -c 'import socket, struct, sys
gateway, port = sys.argv[1], int(sys.argv[2])
routes = [line.split() for line in open("/proc/net/route")][1:]
own = next((socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in routes if r[1] == "00000000"), gateway)
places = [(host, kind) for host in (gateway, "host.docker.internal", "127.0.0.1") for kind in (1, 2)]
tried = 0
for host, kind in [(own, 1), *places[:2], places[2], places[4]]:
    tried += 1
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(1.5)
        try:
            s.connect((host, port)); s.sendall(b"x")
            if b"CANARY" in s.recv(100): print(f"REPORT reached={host} kind={kind}")
        except OSError: pass
print(f"REPORT tried={tried}")' "$GATEWAY" "$PORT"
