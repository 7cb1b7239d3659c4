# Creates thousands of FIFOs and sockets, to fill the report of files left out.
python3 -c 'import os, socket
os.makedirs("specials\033]0;PWNED\007")
for n in range(3000): os.mkfifo(f"specials\033]0;PWNED\007/{n}")
for n in range(50): socket.socket(socket.AF_UNIX).bind(f"s{n}")'
