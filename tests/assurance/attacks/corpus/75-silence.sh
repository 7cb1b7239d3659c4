# Prints nothing and never ends.
#: options --disk 100m --inodes 20000 --log-limit 5m --idle-timeout 8
#: group limits
#: ends timeout idle
#: within 90
sleep 100
