# Creates refs with hostile names: too long, colliding, with `..`, of a next attempt, control sequences.
#: note are kept
t="HEAD^{tree}"; d="$GIT_DIRECTORY/refs/heads"
n=0; plant() { n=$((n + 1)); git commit-tree -p HEAD -m "kept $n" "$t"; }
long=$(printf 'n%.0s' $(seq 61)); deep="$long/$long/$long/$long/$long/$long/$long"
mkdir -p "$d/$deep" "$GIT_DIRECTORY/refs/attempt-2" "$GIT_DIRECTORY/refs/..x"
plant > "$d/$deep/1"; plant > "$d/$deep/${long}2"; plant > "$d/$deep/${long}3"
plant > "$GIT_DIRECTORY/refs/attempt-2/x"; plant > "$GIT_DIRECTORY/refs/..x/@{1}"
plant > "$d/$(printf '\033]0;PWNED\007')"; plant > "$d/$(printf '::set-output name=x::PWNED')"
plant > "$d/$(printf '\342\200\256txt.exe')"; plant > "$d/$(printf '\377\376')"; plant > "$d/x.lock"
plant > "$d/--upload-pack=x"; plant > "$d/$(printf 'two\nlines')"
python3 -c 'import sys
for n in range(5): print(sys.argv[1], "refs/heads/" + "/".join(["y" * 250] * 40) + str(n))
print(sys.argv[1], "refs/../../../../heads/main"); print(sys.argv[1], "refs/heads/\x1b[2J\x9b31m")
' "$(plant)" >> "$GIT_DIRECTORY/packed-refs"
