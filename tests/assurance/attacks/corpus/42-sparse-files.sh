# Files that seem huge: 1 TiB and 20 GiB of nothing.
truncate -s 1T huge.bin a.txt; truncate -s 20G large.bin
