# Sets attributes with which git cannot add the uncommitted files.
#: note without converting them
echo '* working-tree-encoding=UTF-16' > .gitattributes
head -c 1001 /dev/urandom > unreadable.bin; printf 'odd' > odd.txt
