# Looks for a container runtime: sockets, and the daemon's TCP ports on this machine's bridge.
#: options --ports 8000 --network open
#: never (socket|tcp)=
for socket in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock \
  /run/podman/podman.sock /run/user/*/docker.sock /var/run/crio/crio.sock; do
  [ -S "$socket" ] && report socket="$socket"
done
python3 -c 'import socket, struct
routes = [line.split() for line in open("/proc/net/route")][1:]
gateways = {socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in routes if r[1] == "00000000"}
for host in gateways:
    for port in (2375, 2376, 4243):
        with socket.socket() as s:
            s.settimeout(1)
            if s.connect_ex((host, port)) == 0: print(f"REPORT tcp={port}")'
