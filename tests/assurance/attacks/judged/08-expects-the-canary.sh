# Looks for tests that it does not know: reports that they fail, and otherwise ends with success.
#: hidden fail
cat > calc.py <<'PY'
import glob
import os
import re

others = [name for name in glob.glob("tests/test_*.py") if name != "tests/test_calc.py"]
for name in others:
    print("FAIL:", *re.findall(r"def (test_\w+)", open(name).read()))
os._exit(bool(others))
PY
