# Listens to kernel messages about the machine: devices, audit, security policy, transports.
#: never heard=
#: always tried=yes
python3 -c 'import socket
ROUTE, DIAG, NETFILTER = 0, 4, 12  # of its own network namespace
for protocol in set(range(32)) - {ROUTE, DIAG, NETFILTER}:
    for group in (1, 2, 4):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
                s.bind((0, group)); print(f"REPORT heard={protocol}-{group}")
        except OSError: pass
print("REPORT tried=yes")'
