# One line a target: `make help` prints them.  Everything installs into .venv from hash-checked requirements.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
ARGS ?=

export PYTHONDONTWRITEBYTECODE :=
export OPENBLAS_NUM_THREADS := 1

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "EDL needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# etcd3 exists as source only, so the build tools come first, pinned; --no-build-isolation keeps pip from fetching others.
$(STAMP): requirements/build.txt requirements/lock.txt pyproject.toml | $(BIN)/python
	@echo "installing the project (about a minute the first time)"
	@$(PIP) install -q --require-hashes --no-deps --only-binary :all: -r requirements/build.txt
	@$(PIP) install --progress-bar on --require-hashes --no-binary etcd3 --no-build-isolation -r requirements/lock.txt \
		| { grep --line-buffered -E '^(Collecting|Installing|Successfully)' || true; } | cut -c1-100
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: install
install: $(STAMP) ## create .venv and install the project

.PHONY: clean
clean: ## remove .venv and what was built; run folders stay
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
