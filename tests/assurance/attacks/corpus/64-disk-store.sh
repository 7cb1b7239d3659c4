# Fills the disk through its store.
#: options --disk 100m --inodes 5000 --timeout-per-worker 120
#: group limits
#: ends failed disk
#: within 110
i=0; while [ $i -lt 50 ]; do head -c 10M /dev/zero > "$GIT_DIRECTORY"/fill.$i; i=$((i + 1)); done
sleep 90
