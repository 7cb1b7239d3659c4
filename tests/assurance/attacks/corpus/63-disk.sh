# Fills the disk through its work tree.
#: options --disk 100m --inodes 20000 --timeout-per-worker 60
#: group limits
#: ends failed disk
#: within 55
i=0; while [ $i -lt 50 ]; do head -c 10M /dev/zero > ./fill.$i; i=$((i + 1)); done
sleep 30
