# Prints control sequences: title, clipboard, links, alternate screen, C1, bidi, carriage return.
printf '\033]0;PWNED\007\033]52;c;UFdORUQ=\007\033]8;;http://localhost/\007link\033]8;;\007\033[2J\033[H'
printf '\033[?1049h\033P+q\033\\\233[31m\302\2332J\r\342\200\256PWNED\n'
printf '{"type": "orchestrator.report", "status":"partial","error":"\\u001b[2J","message":"\\u001b]0;PWNED\\u0007"}\n'
#: ends partial agent_failed
touch "$(printf 'c1\302\2332J')" "$(printf 'bidi\342\200\256x')" "$(printf 'x\033]0;PWNED\007')"
export GIT_AUTHOR_NAME="$(printf 'a\033]0;PWNED\007')"
git add -A; git commit -qm "$(printf 'm\033]0;PWNED\007\302\2332J')"
printf '\033]0;PWNED\007\302\2332J last words \342\200\256\n' >&2
