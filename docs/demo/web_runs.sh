#!/bin/bash
# Create a repository with an ended workflow and start eight workers, for pictures of the web view.
# usage: web_runs.sh DIRECTORY ORCHESTRATOR
set -euo pipefail
directory=$1
orchestrator=$2
mkdir -p "$directory/shop"
cd "$directory/shop"
git init -q -b main
git config user.name Ann
git config user.email ann@example.com
mkdir -p src tests docs
printf 'def login(user, password):\n    return user.check(password)\n\n\ndef logout(session):\n    session.end()\n' > src/auth.py
printf 'PRICE = 20\n\n\ndef total(items):\n    return sum(item.price for item in items)\n' > src/billing.py
printf 'CREATE TABLE users (id INTEGER, name TEXT);\n' > src/schema.sql
printf '# Shop\n\nA small shop.\n' > README.md
cat > tests/print.sh <<'S'
# Prints what a test runner prints, with colours.
esc=$(printf '\033')
green="${esc}[32m" red="${esc}[31m" dim="${esc}[2m" bold="${esc}[1m" off="${esc}[0m"
printf '%stest session starts%s\ncollected 240 items\n\n' "$bold" "$off"
for i in $(seq 1 240); do
  result="${green}PASSED${off}"
  [ $((i % 97)) != 0 ] || result="${red}FAILED${off}"
  printf 'tests/test_shop.py::test_case_%03d %s %s[%3d%%]%s\n' "$i" "$result" "$dim" $((i * 100 / 240)) "$off"
  [ $((i % 40)) != 0 ] || sleep 0.2
done
printf '\n%s%s2 failed%s, %s238 passed%s in 4.31s\n' "$bold" "$red" "$off" "$green" "$off"
S
git add .
git commit -q -m 'Start'

cat > release.yaml <<'Y'
name: Prepare release 2.4
tasks:
  - id: plan
    task: "echo 'reading the issues'; sleep 1; mkdir -p docs; printf '# Plan\\n\\n- api\\n- ui\\n- database\\n' > docs/plan.md"
  - id: api
    task: "sleep 3; printf '\\n\\ndef refresh(session):\\n    \"\"\"Start a new session.\"\"\"\\n    return session.renew()\\n' >> src/auth.py"
    depends_on: [plan]
  - id: ui
    task: "sleep 2; printf 'def header():\\n    return \"Shop 2.4\"\\n' > src/ui.py"
    depends_on: [plan]
  - id: database
    task: "sleep 4; printf 'CREATE INDEX users_name ON users (name);\\n' >> src/schema.sql"
    depends_on: [plan]
  - id: tests
    task: "sleep 2; mkdir -p tests; printf 'def test_refresh():\\n    assert True\\n' > tests/test_auth.py"
    depends_on: [api, ui]
  - id: benchmark
    task: "sleep 1; echo 'p95 went from 120 ms to 310 ms' >&2; exit 3"
    depends_on: [database]
  - id: changelog
    task: "sleep 1; printf '# 2.4\\n\\n- Sessions can be renewed.\\n' > CHANGELOG.md"
    depends_on: [tests]
  - id: announce
    task: "true"
    depends_on: [benchmark]
Y
"$orchestrator" spec run release.yaml --agent-cli shell --network none --workers 4 --quiet || true

solve="printf 'def refund(total):\n    return -total\n' >> src/billing.py"
cat > refund.yaml <<Y
name: Refunds, in three ways
tasks:
  - id: careful
    task: |
      $solve
      mkdir -p tests; echo 1 > tests/test_refund.txt
  - id: careless
    task: |
      $solve
      : > README.md
  - id: idle
    task: echo 'I found nothing to do'
Y
"$orchestrator" spec run refund.yaml --agent-cli shell --network none --workers 3 --quiet
"$orchestrator" judge --check 'grep -q refund src/billing.py' --check 'test -s README.md' > judged.txt || true
rm judged.txt

cat > sprint.yaml <<'Y'
name: Sprint 14
tasks:
  - id: raise-price
    task: "sleep 6; sed -i 's/PRICE = 20/PRICE = 25/' src/billing.py; echo 'raised the price'"
  - id: refresh-sessions
    task: "echo 'reading src/auth.py'; sleep 4; printf '\\n\\ndef refresh(session):\\n    return session.renew()\\n' >> src/auth.py; echo 'added refresh()'; sleep 900"
  - id: fix-rounding
    task: "sleep 5; echo 'Traceback (most recent call last):'; echo 'AssertionError: 3 != 4'; exit 1"
  - id: migrate-users
    task: "echo 'applying the migration'; sleep 3; printf 'drop table users? (y/n) '; sleep 900"
  - id: run-all-tests
    task: "sh tests/print.sh; sleep 900"
  - id: discounts
    task: "sleep 2; sed -i 's/PRICE = 20/PRICE = 22/' src/billing.py; printf 'def discount(total):\\n    return total * 0.9\\n' >> src/billing.py; echo '# The price is in two places' > \"$ORCHESTRATOR_FINDINGS\"; echo '<h1>Coverage: 93 %</h1>' > \"$ORCHESTRATOR_ARTIFACTS/coverage.html\""
  - id: load-test
    task: "while :; do seq -f 'line %.0f of a very busy worker that never stops talking about its work' 1 1000; sleep 0.1; done"
  - id: installation-guide
    task: "sleep 9; printf '\\nInstall with make.\\n' >> README.md; echo done; sleep 900"
  - id: benchmark
    task: "echo 'measuring'; sleep 900"
    timeout: 20
  - id: publish-rates
    task: "true"
    depends_on: [fix-rounding]
Y
"$orchestrator" spec run sprint.yaml --agent-cli shell --network none --workers 9 --alert-prompt 3 \
  --memory 1g --detach --quiet --retries 1 --retry-delay 2 --timeout-per-worker 900
