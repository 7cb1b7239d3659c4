# Ignores every signal and never ends.
#: options --timeout-per-worker 4 --grace 1
#: ends timeout timeout
#: within 60
trap '' TERM INT HUP QUIT USR1 USR2 PIPE
(trap '' TERM INT HUP QUIT; while :; do sleep 1; done) &
while :; do sleep 1; done
