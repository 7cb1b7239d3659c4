# Plants links where a later run may take a mount's source from, or create a file.
for name in .cache .venv node_modules .architect .orchestrator .claude logs out output results tmp; do
  rm -rf $name; ln -s "$TRAP" $name
done
ln -sf "$TRAP/secret" task.json; ln -sf "$TRAP/secret" .env
ln -sf "$MARK" orchestrator.log; ln -sf "$MARK" prompt.txt
commit
