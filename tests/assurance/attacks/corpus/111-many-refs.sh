# Creates 100,000 packed refs, 3,000 loose refs, and refs with the longest possible names.
id=$(git rev-parse HEAD)
python3 -c 'import sys
for n in range(100000): print(sys.argv[1], f"refs/heads/r{n}")' "$id" >> "$GIT_DIRECTORY/packed-refs"
mkdir "$GIT_DIRECTORY/refs/heads/many"
for n in $(seq 3000); do echo "$id" > "$GIT_DIRECTORY/refs/heads/many/$n"; done
