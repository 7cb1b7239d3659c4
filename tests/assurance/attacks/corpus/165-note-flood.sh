# Creates many long names that are left out, to hide the note about a lost file.
#: note a file over 100 MiB was left out: big
truncate -s 101M big
f=$(printf '\377%.0s' $(seq 250)); mkdir -p "$f/$f/$f/$f/$f/$f/$f/$f"
for n in $(seq 40); do mkfifo "f$n"; mkfifo "$f/$f/$f/$f/$f/$f/$f/$f/$n"; done
