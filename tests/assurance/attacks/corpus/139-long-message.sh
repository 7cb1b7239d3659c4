# Commits with a message of 20 MB, control sequences, and an author's name of 1 MB.
#: refused message included
python3 -c 'print("m\033]0;PWNED\007\n" + "x" * (20 << 20))' > /tmp/message
python3 -c 'import subprocess, sys
name = "a" * 1000000
body = "tree " + sys.argv[1] + "\nparent " + sys.argv[2]
body += f"\nauthor {name} <a@a> 1700000000 +0000\ncommitter {name} <a@a> 1700000000 +0000\n\n"
body += open("/tmp/message").read()
print(subprocess.run(["git", "hash-object", "-t", "commit", "-w", "--stdin"], input=body.encode(),
  capture_output=True).stdout.decode())' "$(git rev-parse "HEAD^{tree}")" "$(git rev-parse HEAD)" > /tmp/id
git update-ref HEAD "$(cat /tmp/id)"
