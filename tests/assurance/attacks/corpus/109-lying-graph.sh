# Leaves damaged and false indexes: commit graph, multi-pack index, reachability bitmaps.
echo more >> a.txt; commit
git commit-graph write --reachable; git repack -adq; git multi-pack-index write --bitmap
for file in $(find "$GIT_DIRECTORY/objects" -name '*graph*' -o -name 'multi-pack*' -o -name '*.bitmap'); do
  [ -f "$file" ] && chmod u+w "$file" && python3 -c 'import os, sys
data = bytearray(open(sys.argv[1], "rb").read())
for at in range(len(data) // 2, len(data)): data[at] ^= 0x5a
open(sys.argv[1], "wb").write(data)' "$file"
done
