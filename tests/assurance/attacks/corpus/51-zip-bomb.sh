# Commits 480 MiB of zeros in a pack of half a megabyte.
#: options --disk 100m --inodes 5000 --timeout-per-worker 120
#: group limits
#: refused too many to check out
i=0; while [ $i -lt 12 ]; do truncate -s 40M z$i; i=$((i + 1)); done
git add -A; git commit -qm bomb
