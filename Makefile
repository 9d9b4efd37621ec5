# Everything the project does, one line each: `make` alone lists the targets.
#
# The environment is .venv. It is made from the hashed lock by plain pip, and made anew when the
# lock changes or when a half-made one is found.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.complete
BASE_PYTHON ?= python3
ENV ?=
N ?=
LOCKS := requirements/dev.txt

.PHONY: help demo test test-suites test-simulation test-runtime check synth bench simulate deploy lock layers clean env

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): $(LOCKS) pyproject.toml
	@BASE_PYTHON="$(BASE_PYTHON)" bash requirements/make-venv $(VENV) requirements/dev.txt

env: $(STAMP) ## Make the environment (.venv); every target that needs it does so itself

demo: $(STAMP) ## Start the local stack, play a third party, show one message's whole story
	@$(PY) -m infra.local.demo

test: test-suites test-simulation ## Run the tests

# Two halves, so that two cores can have one each.
test-suites: $(STAMP)
	@$(PY) -m pytest -q --ignore=tests/simulation

test-simulation: $(STAMP)
	@$(PY) -m pytest -q tests/simulation

test-runtime: ## Run the unit and contract suites on the functions' own Python, if it is here
	@bash .ci/on-runtime

check: $(STAMP) ## Hold format, lint, types, import rules, the OpenAPI document and tools' manifests
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m mesh.operator.openapi --check docs/openapi.json
	@$(PY) -m mesh.tools.packages

synth: $(STAMP) ## Synthesize the CDK app for every environment, offline (build/cdk.out)
	@$(PY) -m infra.app

bench: $(STAMP) ## Measure, print a table and write bench.json
	@$(PY) -m tests.benchmarks

simulate: $(STAMP) ## Run the simulation at length: make simulate N=… draws so many schedules
	@N=$(N) $(PY) -m pytest -q tests/simulation --exhaustive

layers: $(STAMP) ## Build the Lambda layers from the lock, without Docker (build/layers)
	@$(PY) -m infra.layers

deploy: $(STAMP) ## Deploy one environment: make deploy ENV=dev|staging|prod
	@$(PY) -m infra.deploy "$(ENV)"

lock: $(STAMP) ## Resolve the packages that pyproject.toml names anew, with hashes
	@bash requirements/lock $(VENV)/bin/uv

clean: ## Remove what was built, and the environment
	rm -rf build $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis bench.json
