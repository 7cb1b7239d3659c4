# Leaves processes behind that continue to write after the task has ended.
for n in 1 2 3; do
  setsid sh -c "while :; do echo late > late-$n; date > a.txt; git add -A; git commit -qm late; done" \
    > /dev/null 2>&1 < /dev/null &
done
sleep 1
