# What an ordinary user does while the run goes on, in each directory given, until it is killed.
export GIT_TERMINAL_PROMPT=0
while :; do
  for directory; do
    cd "$directory" 2> /dev/null || continue
    timeout 40 git status > /dev/null 2>&1 < /dev/null
    [ $? = 124 ] && echo "hangs in $PWD: git status"
    timeout 40 git diff > /dev/null 2>&1 < /dev/null
    [ $? = 124 ] && echo "hangs in $PWD: git diff"
  done
  sleep 5
done
