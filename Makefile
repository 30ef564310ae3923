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
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "EDL needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# etcd3 exists as source only, so the build tools come first, pinned; --no-build-isolation keeps pip from fetching others.
# --no-deps: the lock names everything, and pip 23 takes a newer release than is pinned where an extra is asked for.
$(STAMP): requirements/build.txt requirements/lock.txt pyproject.toml | $(BIN)/python
	@echo "installing the project (about a minute the first time)"
	@$(PIP) install -q --require-hashes --no-deps --only-binary :all: -r requirements/build.txt
	@$(PIP) install --progress-bar on --require-hashes --no-deps --no-binary etcd3 --no-build-isolation -r requirements/lock.txt \
		| { grep --line-buffered -E '^(Collecting|Installing|Successfully)' || true; } | cut -c1-100
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@$(PIP) check >/dev/null || { $(PIP) check; exit 1; }
	@touch $@

.PHONY: install
install: $(STAMP) ## create .venv and install the project

# What scripts train with and EDL itself does not need.  On a machine without a GPU the same wheel runs on the CPU.
FRAMEWORKS := $(VENV)/.frameworks
$(FRAMEWORKS): requirements/frameworks.txt | $(STAMP)
	@echo "installing torch (downloads some 3 GB)"
	@$(PIP) install --progress-bar on --require-hashes --no-deps --only-binary :all: -r requirements/frameworks.txt \
		| { grep --line-buffered -E '^(Collecting|Installing|Successfully)' || true; } | cut -c1-100
	@$(BIN)/python -c 'import torch; print("torch", torch.__version__)'
	@touch $@

.PHONY: frameworks
frameworks: $(FRAMEWORKS) ## install torch, for scripts and tests that use it (downloads some 3 GB; runs without a GPU)

# The etcd server that the demo, the tests and `edl run` start: found on PATH or built once into the user's cache.
.PHONY: etcd
etcd: $(STAMP)
	@$(BIN)/python -m autoscaler.etcd_server --ensure >/dev/null

.PHONY: demo
demo: $(STAMP) etcd ## two training jobs shrink for a web service and grow back (ARGS="--seed 7 --no-faults")
	@$(BIN)/python -m experiments.demo $(ARGS)

.PHONY: experiments
experiments: $(STAMP) ## redraw the experiments of 2017 and newer ones; writes docs/reports/experiments.md (ARGS="--passes 3")
	@$(BIN)/python -m experiments run $(ARGS)
	@$(BIN)/python -m experiments report
	@$(BIN)/python -m experiments.sizes

.PHONY: experiments-real
experiments-real: cluster-tools ## case 2 of 2017 on the real scheduler, in real time: 40 minutes (ARGS="--arm ours-planner --again")
	@$(BIN)/python -m tests.cluster.experiment $(ARGS)
	@echo "kept; 'make experiments' or '$(BIN)/python -m experiments report' draws it"

.PHONY: lint
lint: $(STAMP) ## format, lint, types, import contracts, class names, commit messages
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/check_names.py
	@$(BIN)/python tools/check_commits.py

# The test cluster's programs, built once into the user's cache; ARGS=--trim frees the space that building took.
.PHONY: cluster-tools
cluster-tools: $(STAMP) ## build Kubernetes, KWOK, helm and Prometheus for the tests (twelve minutes, once; ARGS=--trim)
	@$(BIN)/python -m tests.cluster.build $(filter --trim --nodes,$(ARGS))

# Without ARGS all tests and lint run beside one another; with ARGS it is lint, then one pytest process, which takes any
# of its options.
QUICK ?=
LEFT_OUT := LEFT OUT (QUICK=1): every test on a real Kubernetes control plane. A change needs 'make test' without QUICK.

.PHONY: test
test: $(if $(ARGS),lint) etcd $(if $(QUICK),,cluster-tools) ## everything a change must pass (ARGS="-k planner"; QUICK=1: no cluster)
	@$(if $(QUICK),echo "$(LEFT_OUT)")
	@$(if $(ARGS),$(BIN)/pytest $(if $(QUICK),-m "not cluster") $(ARGS),$(BIN)/python -m tests.side_by_side $(if $(QUICK),--quick))
	@$(if $(QUICK),echo "$(LEFT_OUT)")

# The seed is printed first, and repeats the run.  EDL_HYPOTHESIS=deep takes five times as long.
SEED ?=
.PHONY: test-deep
test-deep: $(STAMP) ## the properties on other random cases each time, for minutes (SEED=N repeats a run)
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); again="make test-deep SEED=$$seed"; \
		echo "'$$again' repeats this run"; export EDL_HYPOTHESIS=$${EDL_HYPOTHESIS:-random}; \
		$(BIN)/pytest tests/property tests/unit -m hypothesis --hypothesis-seed=$$seed $(ARGS) || { echo "again: $$again"; exit 1; }

.PHONY: e2e
e2e: $(STAMP) ## real containers on two real nodes; needs Linux and root (ARGS="-k name" picks)
	@$(BIN)/python -m tests.e2e $(ARGS)

.PHONY: e2e-gpu
e2e-gpu: $(STAMP) ## of these tests the ones of GPUs, without a GPU: agents, unused devices given back; four minutes
	@$(BIN)/python -m tests.e2e -k gpus_live $(ARGS)

.PHONY: e2e-torch
e2e-torch: $(FRAMEWORKS) ## a PyTorch group on those nodes: gives way, grows back, loses a node; five minutes
	@EDL_E2E_TORCH=1 $(BIN)/python -m tests.e2e -k torch_group $(ARGS)

.PHONY: playground
playground: cluster-tools ## a Kubernetes control plane with 8 nodes of GPUs to play with, no containers needed
	@$(BIN)/python -m tests.cluster.playground up

.PHONY: playground-down
playground-down: $(STAMP) ## stop it
	@$(BIN)/python -m tests.cluster.playground down

# What was measured stays in build/reach; ARGS="--measure" measures again, ARGS="--survivors" tries only those again.
.PHONY: mutants
mutants: $(STAMP) etcd ## plant small faults and list those that no test finds; hours (ARGS="--within master/job --jobs 1")
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: mutants-today
mutants-today: $(STAMP) ## eight other planted faults each day, in a minute
	@$(BIN)/python -m tests.mutants --seed $$(date -u +%Y%m%d) --sample 8 --tests tests/unit --nearest 4 --seconds 20 --minutes 1 $(ARGS)

.PHONY: check-protocol
check-protocol: $(STAMP) ## twenty times the protocol states that `make test` explores, and breaks that take minutes
	@$(BIN)/python -m tests.protocol $(ARGS)

.PHONY: chaos
chaos: $(STAMP) etcd ## 200 faults on real processes, at most 20 minutes
	@$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: chaos-moves
chaos-moves: $(STAMP) etcd ## resizes of the servers under 300 faults at named steps, at most 30 minutes
	@$(BIN)/python -m tests.chaos.moves $(ARGS)

.PHONY: chaos-group
chaos-group: $(STAMP) etcd ## groups under 1,000 resizes and 500 faults, at most 30 minutes
	@$(BIN)/python -m tests.chaos.group $(ARGS)

.PHONY: perturb
perturb: $(STAMP) ## the autoscaler under every fault of the plan, in virtual time (ARGS="--family stale", --real)
	@$(BIN)/python -m tests.perturb $(ARGS)

.PHONY: bench
bench: $(STAMP) etcd ## measure; writes docs/reports/benchmarks.json and docs/reports/benchmarks.md
	@$(BIN)/python -m bench $(ARGS)

# What a release hands out; ARGS=--check also installs the wheel into empty environments and runs a job with it.
.PHONY: dist
dist: $(STAMP) etcd ## build wheel, source and chart into dist/ (ARGS=--check installs and tries them)
	@$(BIN)/python -m tools.dist $(ARGS)

.PHONY: format
format: $(STAMP) ## let ruff format and mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: stubs
stubs: $(STAMP) ## generate the gRPC stubs from the .proto files
	@$(BIN)/python tools/generate_stubs.py

.PHONY: reference
reference: $(STAMP) ## write docs/reference out of docstrings and of the definition of TrainingJob
	@$(BIN)/python -m tools.reference

.PHONY: page-pictures
page-pictures: $(STAMP) etcd ## write the pictures of docs/page.md, of a demo run; needs Debian's chromium
	@$(BIN)/python -m tools.page_pictures

# Names, versions and hashes only; needs `uv`, which is not part of the project's environment.
.PHONY: requirements
requirements: ## resolve pyproject.toml into requirements/lock.txt and frameworks.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-header --no-annotate \
		pyproject.toml --extra dev -o requirements/lock.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-header --no-annotate \
		--group frameworks --constraint requirements/lock.txt -o requirements/frameworks.txt

.PHONY: clean
clean: ## remove .venv and what was built; run folders stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
