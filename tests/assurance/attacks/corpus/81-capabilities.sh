# Lists its capabilities, and tries to get others.
#: always CapEff=0000000000000000
#: always CapBnd=0000000000000000
#: never (raw|node|owner|userns|mount|uid)=(1|0)$
for field in CapEff CapBnd; do report "$field=$(awk "/$field/{print \$2}" /proc/self/status)"; done
report "uid=$(id -u)"
python3 -c 'import socket; socket.socket(17, 3, 8)' && report raw=1
mknod /tmp/null c 1 3 && report node=1; chown 0 /tmp && report owner=1
unshare -Ur true && report userns=1; mount -t tmpfs none /mnt && report mount=1
