# What a person types. Each target does its own set-up: Python packages from requirements.lock go to .venv, the
# programs of the local cluster to the user's cache folder, Debian packages are installed where they are missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
NAME ?= demo
VENV := .venv
READY := $(VENV)/.installed
BIN := $(VENV)/bin

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): requirements.lock pyproject.toml
	@echo "== Python packages -> $(VENV) (about 1 min)"
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else f"Python 3.11 is needed (a later one cannot make the controller image), $(PYTHON) is {v}: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { echo "a virtual environment could not be made: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: install
install: $(READY) ## Install the project and its development tools into .venv

.PHONY: demo
demo: $(READY) ## The story on a real cluster: two jobs, a preemption, A=1, A=2 (PLAIN=1; CONTEXT=yours, YES=1)
	@$(BIN)/python -m dispatch_local --name $(NAME) demo $(if $(CONTEXT),--context '$(CONTEXT)') $(if $(PLAIN),--plain) \
		$(if $(YES),--yes) $(if $(SVG),--svg '$(SVG)') $(if $(IMAGE),--image '$(IMAGE)') \
		$(if $(CONTROLLER_IMAGE),--controller-image '$(CONTROLLER_IMAGE)')

.PHONY: down
down: $(READY) ## Take the demo's cluster down
	@$(BIN)/python -m dispatch_local --name $(NAME) down

.PHONY: test
test: lint programs ## All tests, one run of each kind, from unit to real cluster
	@echo "== tests"
	@$(BIN)/python -m pytest

.PHONY: test-installed
test-installed: programs ## The readmission gate's tests against what `pulumi up` installs (LEVEL=executions: strict)
	@DISPATCH_INSTALLED=1 DISPATCH_LEVEL=$(LEVEL) $(BIN)/python -m pytest \
		tests/readmission/test_kinds.py tests/readmission/test_jobs.py tests/readmission/test_orders.py \
		tests/readmission/test_foreign.py tests/guard_rails/test_refused_nothing.py

.PHONY: prove
prove: programs ## Search every order of events with the code that ships, mutants, models against the real thing (ARGS='1 3': parts of the search)
	@$(BIN)/python -m explorer $(ARGS)
	@$(BIN)/python -m faithful mutants
	@$(BIN)/python -m faithful simulate
	@$(BIN)/python -m faithful requests

.PHONY: soak
soak: programs ## Hundreds of runs of the readmission gate on a real cluster (ARGS='--count 240 --seed 1'; --help)
	@$(BIN)/python -m readmission.soak $(ARGS)

.PHONY: soak-crashes
soak-crashes: programs ## Each request of `pulumi up` and `destroy` cut off in each way, and the plain next run
	@$(BIN)/python -m pytest tests/resources/soak_crashes.py

.PHONY: programs
programs: $(READY) ## Build what the local cluster runs (30 min when nothing is cached)
	@echo "== programs of the local cluster"
	@$(BIN)/python -m dispatch_local build

.PHONY: versions
versions: programs ## The core of the tests with older releases of Kueue, too, and a table (1 h; ARGS=0.17.1: that one)
	@$(BIN)/python -m versions $(ARGS)

.PHONY: bench-local
bench-local: $(READY) ## Measure the local cluster: warm starts, idle memory
	@$(BIN)/python -m dispatch_local bench

.PHONY: soak-local
soak-local: $(READY) ## The local cluster's long tests: Ctrl-C at random moments, three demos at once
	@DISPATCH_MOMENTS=$(or $(MOMENTS),10) $(BIN)/python -m pytest \
		tests/local_cluster/soak_local.py tests/local_cluster/test_moments.py tests/local_cluster/test_build.py \
		tests/demo/test_demo.py tests/infra/soak_guest.py

.PHONY: test-charts
test-charts: programs ## infra/ with Kueue and Trainer by their charts, on a real cluster that has neither (13 min beside other work)
	@$(BIN)/python -m pytest tests/infra/with_charts.py

.PHONY: lint
lint: $(READY) ## ruff, mypy --strict, import-linter
	@echo "== ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy --no-error-summary
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-logo > .import-linter.log || { cat .import-linter.log; exit 1; }

.PHONY: bench
bench: $(READY) ## What an admission costs, beside a raw driver (8 min; BENCH="--output json", --help lists more)
	@$(BIN)/python -m bench $(BENCH)

.PHONY: bench-guard-rails
bench-guard-rails: programs ## What the guard rails cost: each guarded write with them and without, in turns
	@cd tests && ../$(BIN)/python -m guard_rails.latency

.PHONY: wheels
wheels: $(READY) ## The project's wheel and all that the controller's image needs -> dist/wheels
	@$(BIN)/python -m dispatch_local.wheels

.PHONY: clean
clean: ## Remove what make made in this folder; the user's cache folder stays
	@rm -rf $(VENV) dist .import-linter.log .mypy_cache .ruff_cache .pytest_cache
