# Scans its network for other workers.
#: options --ports 8000 --network open
#: never reached=
python3 -c 'import socket, time
mine = socket.gethostbyname(socket.gethostname())
time.sleep(1)
for last in range(2, 16):
    host = mine.rpartition(".")[0] + f".{last}"
    if host == mine: continue
    with socket.socket() as s:
        s.settimeout(0.25)
        if s.connect_ex((host, 8123)) == 0: print(f"REPORT reached={host}")'
true
