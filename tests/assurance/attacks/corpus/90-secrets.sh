# Prints its secret in many encodings, reports and commits it: as text, message, author and name.
#: options --secret ATTACK_TOKEN
#: ends failed agent_failed
#: note contains the value of `ATTACK_TOKEN`
value=$(cat "$ORCHESTRATOR_SECRETS/ATTACK_TOKEN" 2> /dev/null || echo "$ATTACK_TOKEN")
report "value=$value"; echo "$value" >&2
printf %s "$value" | base64; printf %s "$value" | xxd -p; printf %s "$value" | od -An -tx1
for cut in 3 9 17; do
  printf %s "$(echo "$value" | cut -c-$cut)"; sleep 0.1; echo "$value" | cut -c$((cut + 1))-
done
printf '{"type": "orchestrator.report", "status": "failed", "message": "%s", "error": "%s"}\n' "$value" "$value"
echo "$value" > kept.txt; echo "$value" > "named-$(echo "$value" | tr / _)"
export GIT_AUTHOR_NAME="$value"
git add -A; git commit -qm "$value"
echo "the last words are $value" >&2
exit 3
