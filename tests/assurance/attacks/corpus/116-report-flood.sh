# Prints a hundred thousand reports, and one of thirty megabytes.
python3 -c 'for n in range(100000): print("{\"type\": \"orchestrator.report\", \"status\": \"failed\", \"cost\": 1e9")
print("{\"type\": \"orchestrator.report\", \"status\": \"failed\", \"cost\": [" + "0," * (15 << 20) + "0]}")'
