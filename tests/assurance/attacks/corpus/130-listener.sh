# Waits for connections from other workers.
#: options --ports 8000 --network open
timeout 6 python3 -c 'import socket
with socket.create_server(("0.0.0.0", 8123)) as server: server.accept()'
true
