# Floods both streams and every report with CI commands at the same time.
#: ends failed agent_failed
python3 -c 'import sys
line = "::stop-commands::PWNED\r##vso[task.prependpath]/PWNED\n::add-mask::PWNED\n--- PWNED\n"
for _ in range(3000):
    sys.stdout.write(line); sys.stderr.write(line)
print("{\"type\": \"orchestrator.report\", \"cost\": 1e-9, \"message\": \"" + "::add-mask::x ##[add-mask]PWNED " * 2000 + "\"}")'
exit 4
