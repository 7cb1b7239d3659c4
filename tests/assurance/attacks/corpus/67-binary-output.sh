# Prints NUL bytes, invalid UTF-8, lone surrogates, and deep and huge JSON.
head -c 20M /dev/zero; head -c 1M /dev/urandom; printf '\377\376\355\240\200\n'
python3 -c 'print("[" * 200000, "]" * 200000); print("{\"a\":" * 100000)
print("{\"type\": \"orchestrator.report\", \"status\": \"success\", \"cost\":", "9" * 100000, ",\"steps\":1e999,\"a\":\"\\ud800\"}")
print("{\"type\": \"orchestrator.report\", \"status\": \"success\", \"cost\": NaN, \"duration\": -Infinity}")
print("{\"type\": \"orchestrator.report\", \"status\": \"success\", \"x\": \"" + "y" * (3 << 20) + "\"}")'
