# Creates FIFOs in the object store, as pack indexes and as the objects that are needed next.
echo more >> a.txt; commit
for id in $(git rev-parse HEAD "HEAD^{tree}"); do
  file=$GIT_DIRECTORY/objects/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-)
  rm -f "$file"; mkfifo "$file"
done
for name in pack-$(printf %040d 7).idx pack-$(printf %040d 7).pack multi-pack-index; do
  mkfifo "$GIT_DIRECTORY/objects/pack/$name"
done
