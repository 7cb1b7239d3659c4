# Creates links where a later run may read a mount's source or create a file.
for name in .cache .venv node_modules .architect .orchestrator .claude logs out output results tmp; do
  rm -rf $name; ln -s "$TRAP" $name
done
ln -sf "$TRAP/secret" task.json; ln -sf "$TRAP/secret" .env
ln -sf "$MARK" orchestrator.log; ln -sf "$MARK" prompt.txt
commit
