# Many and long names of what is left out, so that a lost file goes without a word
#: note file over 100 MiB left out: big
truncate -s 101M big
f=$(printf '\377%.0s' $(seq 250)); mkdir -p "$f/$f/$f/$f/$f/$f/$f/$f"
for n in $(seq 40); do mkfifo "f$n"; mkfifo "$f/$f/$f/$f/$f/$f/$f/$f/$n"; done
