# Creates sparse files of 1 TiB and 20 GiB.
truncate -s 1T huge.bin a.txt; truncate -s 20G large.bin
