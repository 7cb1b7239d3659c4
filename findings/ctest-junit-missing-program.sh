#!/usr/bin/env bash
# Package: cmake 4.4.5 (PyPI; only its ctest is used).
# Guess:   a test that ctest counts as failed on the console is a failure in the file that
#          ctest --output-junit writes, so that a report read from the file agrees with the exit code.
# Instead: a test whose program does not exist fails the run (exit code 8) but is written as
#          <skipped>, with failures="0": the same form as a test that asked to be skipped, exit code 0.
#          A reader of the file alone takes a build without its test programs for a good one.
# Seen on 2026-11-29:
#   absent: exit code 8, failures="0" skipped="1", <skipped message="Unable to find executable"/>
#   optional: exit code 0, failures="0" skipped="1", <skipped message="SKIP_RETURN_CODE=77"/>
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check cmake==4.4.5

cd "$work"
cat >CTestTestfile.cmake <<'EOF'
add_test(absent "no-such-program")
add_test(optional "/bin/sh" "-c" "exit 77")
set_tests_properties(optional PROPERTIES SKIP_RETURN_CODE 77)
EOF

run() { # TEST
    local code=0
    venv/bin/ctest -R "^$1\$" --output-junit "$1.xml" >"$1.log" 2>&1 || code=$?
    echo "$1: exit code $code," \
        "$(grep -oE '(failures|skipped)="[0-9]+"' "$1.xml" | paste -sd' ')," \
        "$(grep -oE '<(failure|skipped|error)[ >].*' "$1.xml")"
}
{
    run absent
    run optional
} | tee seen

if ! grep -q '^absent: exit code 8, failures="0" skipped="1", <skipped ' seen ||
    ! grep -q '^optional: exit code 0, failures="0" skipped="1", <skipped ' seen; then
    echo "changed: ctest writes a missing program differently into its JUnit file" >&2
    exit 1
fi
