# Prints 200 MB of lines to both streams.
#: options --disk 100m --inodes 20000 --log-limit 5m --idle-timeout 8
#: group limits
#: ends failed log_limit
yes 0123456789abcdef0123456789abcdef | head -c 200M | tee /dev/stderr
