# make setup      install a Docker engine if necessary, create the virtual environment, build images
# make test-fast  tests without processes and containers, for every save (seconds)
# make test-lowest  test-fast with the lowest versions of the dependencies (minutes, network)
# make test       everything that a change can break, with real containers (CI runs check and test)
# make check      linters, types, contracts, generated documentation
# make test-all   test, variants, agents, attacks, faults, fuzz and mutation (two hours)
# make docs       build the documentation as a site
# make zipapp     build the program as one file, dist/orchestrator.pyz (minutes, network)
# make demo       run the demo
# make bench      print the tables of docs/performance.md (20 minutes, an idle machine);
#                 PARTS="tasks history" for some of them
# make agents     test every agent program, with each kind of failure (a quarter of an hour)
# make variants   run every combination of parameters of the tests that `make test` runs with few,
#                 and tests with containers of what cheaper tests show
# make attacks    run every hostile task as root and as an ordinary user, with and without overlays
#                 (ten minutes)
# make faults     inject faults into real runs, at every step and 220 times at random
#                 (half an hour)
# make fuzz       harvest, import and merge 2000 hostile git states that are generated (half an hour)
# make validators check reports and recipes with programs of the package registries (minutes, network)
# make engines    test the engines of other Debian releases (half an hour, network)
# make mutation   remove each protection in turn, and check that a test fails
#                 (half an hour)
# make cluster    test the engine `kubernetes` on a cluster of three nodes on this machine (three quarters
#                 of an hour; the first time, programs are built for ten minutes)
# make cluster-smoke  a few of these tests, on one node

PYTHON ?= python3
# Tests of a file run in one process, because they share fixtures. tests/support/cost.py orders the
# files: slow tests with containers come first, many short tests last.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
# Images that `make test` needs in addition to that of architect; `make agents` runs all programs.
TESTED := claude broker
OTHERS := codex gemini opencode mini aider
BIN := .venv/bin
STAMP := .venv/.installed
export PYTHON
# With this variable, Python would compile all modules again at every start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup images agent-images test test-fast test-lowest test-all variants agents attacks check docs demo bench \
  faults fuzz mutation validators engines zipapp cluster cluster-smoke clean

setup: images

images: $(STAMP)
	sh images/setup-engine.sh
	$(BIN)/orchestrator image build

$(STAMP): pyproject.toml
	sh images/setup-engine.sh python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'error: Python 3.11 or later is needed' >&2; echo >&2; \
	  echo 'hint: `make PYTHON=python3.12`' >&2; exit 3; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

agents: TESTED += $(OTHERS)
agent-images: images
	@for agent in $(TESTED); do \
	  $(BIN)/orchestrator image build --quiet --agent $$agent || exit; done

test: agent-images
	$(BIN)/pytest -m 'not bench and not agents and not extra and not cluster' $(PYTEST_ARGS)

test-fast: $(STAMP)
	$(BIN)/pytest -m fast -n 2 -q

# `uv pip compile` also lists what the dependencies need; only the lines of the declared ones count.
test-lowest: $(STAMP)
	mkdir -p build
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --extra ui --resolution lowest-direct \
	  --no-deps --no-header --no-annotate --output-file build/lowest.txt pyproject.toml
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest/bin/python --editable '.[dev]' \
	  --constraint build/lowest.txt
	build/lowest/bin/python -m pytest -m fast -n 2 -q

test-all: test variants agents attacks faults fuzz mutation

variants: images
	sh images/setup-engine.sh chromium
	@command -v sshd > /dev/null || test -x build/sshd/usr/sbin/sshd || { mkdir -p build/sshd && cd build/sshd && \
	  apt-get download --quiet openssh-server libwrap0 && \
	  for package in *.deb; do dpkg --extract "$$package" .; done; }
	$(BIN)/pytest -m 'variants or extra' --every-variant $(PYTEST_ARGS)

agents: agent-images
	$(BIN)/pytest -m agents $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/check.py
	$(BIN)/python docs/tools/measure.py --check

# Build the documentation as a site in build/site; a broken link is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# One file for every supported Python and processor. It installs itself into a cache when it starts for
# the first time, so that the program can start its helper processes.
zipapp: $(STAMP)
	rm -rf build/zipapp
	$(BIN)/python -m hatchling build --target wheel --directory build/zipapp
	$(BIN)/pex build/zipapp/*.whl --venv prepend --sh-boot --console-script orchestrator \
	  $(foreach python,311 312 313 314,$(foreach processor,x86_64 aarch64, \
	  --platform manylinux_2_17_$(processor)-cp-$(python)-cp$(python))) --output-file dist/orchestrator.pyz
	cd / && env -i PATH="$$PATH" PEX_ROOT=$(CURDIR)/build/zipapp $(CURDIR)/dist/orchestrator.pyz --version

demo: images
	$(BIN)/python docs/demo/demo.py

bench: images
	$(BIN)/orchestrator image build --quiet --agent broker
	$(BIN)/python tests/bench/all.py $(PARTS)

attacks: images
	$(BIN)/pytest --every-caller tests/assurance/attacks

faults: images
	$(BIN)/pytest -n 4 --faults 220 tests/assurance/faults tests/worker/test_attempts_killed.py

fuzz: images
	$(BIN)/pytest -n 3 --fuzz-cases 2000 tests/assurance/fuzz

mutation: images
	$(BIN)/python -m tests.assurance.mutation.check --report tests/assurance/protections.md

# A Kubernetes cluster of Debian's packages on this machine, which is built once (minutes) and kept.
cluster: images
	$(BIN)/python -m tests.cluster.lab test

# A part of it for CI, on one node: a run that commits, the proof of the network policy, a killed client.
cluster-smoke: images
	ORCHESTRATOR_TEST_NODES=1 $(BIN)/python -m tests.cluster.lab test --durations 0 \
	  tests/cluster/test_command.py::test_work_comes_back_on_a_branch \
	  'tests/cluster/test_network.py::test_task_begins_when_its_network_is_closed[none-0.0]' \
	  'tests/cluster/test_killed_clients.py::test_killed_run_is_resumed_and_its_task_ran_once[after-launch-1]'

validators: images
	$(BIN)/python tests/system/registry_validators.py

engines: agent-images
	$(BIN)/python tests/system/other_engines.py

# Remove generated files, but neither images nor the engine.
clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
