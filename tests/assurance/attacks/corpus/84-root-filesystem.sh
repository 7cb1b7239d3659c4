# Looks for writable places outside its own directories.
#: never root=
for path in /x /etc/x /usr/x /var/x /git-objects/x /dev/x; do
  (: > $path) && report root=$path
done
