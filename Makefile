# Every target works in a fresh clone: .venv is made on demand, with what the target needs, and reused until
# pyproject.toml changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest --numprocesses 2

# Tests start many processes, and what these import need not be compiled in each of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-all lint types check-release clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo ## install the package, run examples/demo.py and make a collection to look at
	$(BIN)/python examples/demo.py
	$(BIN)/gphash demo

docs: $(VENV)/.ready-docs ## build the site into build/site, which opens from disk
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/site
	@echo "open build/site/index.html"

test: $(VENV)/.ready-test ## run the tests that every change needs
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.ready-dev ## run all tests: with servers, browsers, clusters, kills, examples and benchmarks
	$(PYTEST)

lint: $(VENV)/.ready-dev ## check rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev ## check the types
	$(BIN)/mypy --strict src

check-release: ## build what would be released and try it in fresh environments; QUICK=1 for the quick part
	$(PYTHON) .ci/check_release.py $(if $(QUICK),--quick)

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist docs/gallery docs/reference/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -exec rm -rf {} +

# The stamp is written last, so an interrupted set-up is taken up again. An environment that cannot run pip, or whose
# Python is too old, is made anew.
$(VENV)/.ready-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "gphash needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --editable '.[$*]'
	@touch $@
