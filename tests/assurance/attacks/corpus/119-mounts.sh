# Tries to move, unmount and cover the mounts in its work tree.
#: never done=
mkdir other; mv .git other/ && report done=mv; umount -l .git && report done=umount
mount --bind other . && report done=bind; python3 -c 'import os; os.rename(os.getcwd(), "/tmp/elsewhere")' && report done=rename
unshare -Urm sh -c 'umount .git' && report done=unshare
pivot_root . other && report done=pivot; true
