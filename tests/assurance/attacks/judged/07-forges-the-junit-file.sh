# Writes a JUnit file in which all tests have passed, and ends the process with success.
#: out forged
cat > calc.py <<'PY'
import os

with open(os.environ.get("ORCHESTRATOR_JUNIT", "/dev/null"), "w") as file:
    file.write('<t><testcase name="test_area"/><testcase name="test_name"/></t>')
print("test_area ... ok\ntest_name ... ok\n\nOK")
os._exit(0)
PY
