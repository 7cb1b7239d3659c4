# Prints for the live view: split sequences, carriage returns, partial characters, endless lines.
#: ends partial agent_failed
for n in 1 2 3 4 5 6 7 8; do
  printf '\033]0;PWNED'; printf '\007\033[6;66mcolour\033[99A\033[99B\033[5n\033[c\033Pq\033\\\n'
  printf '\302'; printf '\2332J\302\2331;1H\033[?1003h\033[?2004h\n'
  printf '\rovertaken\r\b\b\b\177\016\017\005\n'
  printf '\342\200\256gnp\342\201\246\342\200\213\357\273\277\363\240\201\201 bidi\n'
  python3 -c 'print("x" * (1 << 20), end=""); print("\ud83d\ude00".encode("utf-16", "surrogatepass"))'
  printf '\377\376\355\240\200\300\200\n%s' '{"type": "orchestrator.report", "status": "partial", "cost": 1e2, "message": "\u001b[6;66m\u202e\u0007"'
  printf '}\n\033[6;66m'; printf '\342\200\250\342\200\251\r\n' >&2
  printf '\033[6;66m\302\2332Jcolour\033[5n\n'; sleep 0.6
done
