# 100,000 refs in a file, 3,000 as files, and the longest names there may be.
id=$(git rev-parse HEAD)
python3 -c 'import sys
for n in range(100000): print(sys.argv[1], f"refs/heads/r{n}")' "$id" >> "$GIT_DIRECTORY/packed-refs"
mkdir "$GIT_DIRECTORY/refs/heads/many"
for n in $(seq 3000); do echo "$id" > "$GIT_DIRECTORY/refs/heads/many/$n"; done
