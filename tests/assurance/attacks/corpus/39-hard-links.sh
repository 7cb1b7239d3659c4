# Creates hard links to files mounted beside the work tree, and writes through them.
number=0
for file in /git-objects/pack/*.pack "$COMMON/config" ../.git/config /etc/passwd .git; do
  number=$((number + 1))
  ln "$file" hard-$number && report linked="$file"
  [ -f hard-$number ] && printf '[core]\n\tfsmonitor = %s; false\n' "$PAYLOAD" >> hard-$number
done
