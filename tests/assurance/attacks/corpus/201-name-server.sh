# Floods the engine's resolver, which runs outside of the worker's limits, with DNS queries.
#: options --ports 8000 --network open
#: most answered 2500
python3 -c 'import socket, time
name = socket.gethostname().encode()  # The daemon asks nobody else for it.
question = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\0\0\1\0\1"
answered, end = 0, time.monotonic() + 2
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect(("127.0.0.11", 53)); s.setblocking(False)
    while time.monotonic() < end:
        try: s.send(question)
        except OSError: pass
        try: answered += len(s.recv(600)) > 0
        except OSError: pass
print(f"REPORT answered={answered}")'
