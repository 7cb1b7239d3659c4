# Listens on its published port and answers with invalid data.
#: options --ports 8000 --network open
timeout 3 python3 -c 'import socket
with socket.create_server(("0.0.0.0", 8000)) as server:
    while True:
        connection, _ = server.accept(); connection.sendall(b"\0\xff" * 100000); connection.close()'
true
