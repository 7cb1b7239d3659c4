# Moves main and another worker's branch, deletes a branch, adds a replacement object.
#: ends success
evil=$(git commit-tree "HEAD^{tree}" -m evil)
git update-ref refs/heads/main "$evil"
for number in 1 2 3 4 5 6 7 8 9 10; do
  [ $number = "$ORCHESTRATOR_WORKER_ID" ] || git update-ref refs/heads/architect/parallel-$number "$evil"
done
git update-ref -d refs/heads/private
git update-ref "refs/replace/$(git rev-parse HEAD)" "$evil"
echo "$evil" > "$COMMON/refs/heads/main"
