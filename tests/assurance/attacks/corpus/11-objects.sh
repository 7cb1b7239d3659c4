# Empties and deletes every object it can reach.
for directory in "$COMMON/objects" /git-objects /objects; do
  find $directory -type f -exec sh -c 'chmod u+w "$1"; : > "$1"; rm -f "$1"' sh {} ';'
done
rm -rf "$COMMON"/objects/* && git gc --quiet --prune=now
