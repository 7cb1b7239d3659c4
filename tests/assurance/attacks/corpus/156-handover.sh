# Hands over links, FIFOs, sockets, devices, and large or deep files as findings and artifacts.
#: note the worker's `findings.md` is not a readable file; .* had too long a path.*; .* were not regular files|artifacts and findings were not regular or did not fit
#: never done=
OUT=/run/orchestrator/out
mkfifo $OUT/findings.md
cd $OUT/artifacts
ln -s "$TRAP/secret" secret; ln -s "$TRAP" folder; ln -s ../../../../worker-2/result.json result.json
ln -s /dev/zero endless; ln -s . itself; ln $OUT/findings.md same-fifo; mkfifo "$(printf 'a\nb')"
mknod hole c 0 0; mknod disk b 8 0 && report done=mknod
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
truncate -s 10G huge; chmod u+s huge
python3 -c 'import os
for level in range(3000): os.mkdir("d"); os.chdir("d")'
mkdir locked; mkfifo locked/fifo; chmod 0 locked
for place in /run/orchestrator /run/orchestrator/shared /run/orchestrator/inputs; do
  touch $place/x && report done=$place
done
rmdir $OUT || mv $OUT /run/orchestrator/other && report done=moved
