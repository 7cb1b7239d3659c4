# PID 1 of a step's container. Arguments: the directory of the step's channel, which no step can
# change, for how many seconds to wait for it, and how many processes its user and how many open files
# each process can have, if the engine limits neither. The porter made these FIFOs in the directory:
#   obey     words from the porter: `go`, `TERM`, `reap`, `exit N`. Its end means KILL: other
#            processes of the step could take words away, but nobody can hide the end of a file.
#   say      words to the porter: `began`, `exit N`
#   out err  the command's output. This process holds both open until the namespace ends.
# The file `order` has the command and its variables; the porter removes it when the command began.
# PID 1 of a namespace ignores signals from inside, and needs no new process to send a signal. The file
# of this shell must not be readable for the step's user: then no process of the step can trace it.
[ $$ = 1 ] || exit 125    # elsewhere, `kill -1` would reach processes of others
trap '' HUP INT QUIT TERM PIPE
waited=0    # twentieths of a second
until [ -p "$1/obey" ]; do
  [ $waited -lt $((${2:-60} * 20)) ] && [ ! -e "$1/over" ] || exit 125
  # The container of a second run waits as long as its pod lives, and every `sleep` is a process.
  if [ $((waited += 1)) -le 60 ]; then sleep 0.05; else sleep 1; waited=$((waited + 19)); fi
done
exec 3< "$1/obey" 4> "$1/out" 5> "$1/err"
read -r word <&3 && [ "$word" = go ] || exit 125
limit() {    # the largest number, and the letters that shells have for the limit; a lower limit stays
  most=$1
  shift
  for letter; do
    lower=$(ulimit "-H$letter" 2> /dev/null) || continue
    [ "$lower" = unlimited ] || [ "$lower" -gt "$most" ] || return 0
    ulimit "-$letter" "$most" && return 0
  done
  echo "the image's sh cannot set a limit of the step" >&5
  exit 125
}
if [ -n "$3" ]; then
  limit "$4" n
  limit "$3" u p    # last, because a process may be too many then
fi
(
  # Caught rather than ignored: a command inherits what is ignored, and must not.
  trap : HUP INT QUIT TERM
  trap - PIPE
  exec 3<&- 6> "$1/say" < /dev/null
  ( . "$1/order" ) >&4 2>&5
  printf '\nexit %s\n' "$?" >&6
) &
while read -r word rest <&3; do
  case $word in
    TERM) kill -TERM -1 2> /dev/null ;;
    reap) jobs > /dev/null ;;    # collects processes whose parents are gone
    exit) exit "$rest" ;;
  esac
done
kill -KILL -1 2> /dev/null
exit 137
