# Fills the disk by way of its store.
#: options --disk 100m --inodes 20000
#: group limits
#: ends failed disk
#: within 35
i=0; while [ $i -lt 50 ]; do head -c 10M /dev/zero > "$GIT_DIRECTORY"/fill.$i; i=$((i + 1)); done
sleep 30
