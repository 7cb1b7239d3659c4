# Where it can write outside of its own places.
#: never root=
for path in /x /etc/x /usr/x /var/x /git-objects/x /dev/x; do
  (: > $path) && report root=$path
done
