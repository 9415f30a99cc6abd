# `make` alone lists the targets. The environment is .venv, made on first use.
# Another interpreter: make PYTHON=python3.12 test. Options for pytest: make test ARGS="-k kernel".
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

# Idle OpenMP threads that spin slow everything else down on a shared machine.
export OMP_WAIT_POLICY := passive
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo bench campaign docs test lint

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.usable ## train on spoken digits beside an LSTM, and hear words live
	@$(BIN)/s4d demo

bench: .venv/.installed ## measure speed and memory against the alternatives; takes long
	@$(BIN)/s4d bench --out benchmarks/results $(ARGS)

campaign: .venv/.installed ## kill, damage and fuzz everything; half an hour, ARGS=--quick for less
	@$(BIN)/python benchmarks/campaign $(ARGS)

docs: .venv/.installed ## build the documentation: build/docs/index.html
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/docs-cache docs build/docs
	@echo "build/docs/index.html"

test: lint ## lint, then run every test, and the examples in README and docs
	@echo "pytest"
	@$(BIN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

lint: .venv/.installed ## check style (ruff) and types (mypy, strict)
	@echo "ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "ruff format --check"
	@$(BIN)/ruff format --check --quiet . || \
		{ echo "not formatted; run: $(BIN)/ruff format ." >&2; exit 1; }
	@echo "mypy"
	@$(BIN)/mypy --no-error-summary

# Other pins, a new environment: an old one may hold packages the pins no longer name.
.venv/.pins: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "s4d-torch needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another interpreter, e.g.: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@echo "making .venv with $$($(PYTHON) --version)"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@touch $@

# The package and what it needs; enough to use it, and much less than the tests need.
.venv/.usable: .venv/.pins pyproject.toml
	@echo "installing s4d-torch into .venv (a minute, the first time)"
	@$(BIN)/python -m pip install -qq -c constraints.txt -e .
	@touch $@

# One pip command, so that the resolver sees torch and all that needs it at once. Then aeon
# and sktime, whose checks of estimators the tests run: they ask for older packages than they need.
.venv/.installed: .venv/.pins pyproject.toml
	@echo "installing s4d-torch and the pinned packages into .venv (minutes, the first time)"
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install -qq --no-deps -c constraints.txt aeon sktime scikit-base
	@touch .venv/.usable $@
