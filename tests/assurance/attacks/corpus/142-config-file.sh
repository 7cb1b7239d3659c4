# Commits a configuration file of the orchestrator, for the next run to use.
for name in orchestrator.yaml orchestrator.yml orchestrator.json .orchestrator.yaml; do
  printf 'parallel_runs:\n  api_base: http://PWNED:1/\n  workers: 9\n  tasks: ["touch %s"]\ncontainer:\n  image: PWNED\n' \
    "$MARK" > $name
done
printf 'ORCHESTRATOR_IMAGE=PWNED\n' > .env
commit
