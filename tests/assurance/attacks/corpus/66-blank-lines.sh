# Prints a flood of blank lines, which a naive log would multiply.
#: options --disk 100m --inodes 20000 --log-limit 5m --idle-timeout 8
#: group limits
#: ends failed log_limit
yes '' | head -c 50M
