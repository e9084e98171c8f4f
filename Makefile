# make conformance   the suites: does the installed stack still train every strategy the same way?
# make test          the tests of the instruments themselves
# make thorough      the same with every planted fault and every healthy trainer; `make test` has some of each kind
# make installed     the wheel, alone in a fresh environment: does `meshproof check` work in an empty folder?
# make mutants       do the suites see every fault that an operator plants in a strategy?
# make stability     twenty runs of the suites in random orders: do they all say the same?
# make faults        1,000 faults of runs and of groups of processes, at drawn points: is nothing lost, and who is named?
# make peers         is the model in PyTorch that the book is timed beside the same one? in an environment of its own
# make foreign       what docs/foreign.md reports: trainers that nobody here wrote, in an environment of their own
#
# Python and make are all that is needed. make test looks at pages in Chromium too, and brings it where it may.
# PYTHON=python3.12 CONSTRAINTS=constraints/stack-b.txt make conformance chooses interpreter and stack (without
# CONSTRAINTS the newest versions); ARGS="-k fsdp" goes on to pytest.

PYTHON ?= python3
CONSTRAINTS ?=
WORKERS ?= auto
SEED ?= $(shell date +%Y%j)
ARGS ?=

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error $(PYTHON) does not run; set PYTHON to a Python of 3.11 or newer, as in PYTHON=python3.12 make test)
endif

ENVIRONMENT := .venv-python$(VERSION)$(addprefix -,$(basename $(notdir $(CONSTRAINTS))))
BIN := $(ENVIRONMENT)/bin
READY := $(ENVIRONMENT)/ready

.PHONY: conformance test thorough installed mutants stability faults foreign peers benchmark spec lint clean
.DEFAULT_GOAL := conformance

unexport PYTHONDONTWRITEBYTECODE # hundreds of processes import what the first of them has compiled

conformance: $(READY)
	$(BIN)/python -m pytest suites/ -n $(WORKERS) $(ARGS)

test: $(READY) $(ENVIRONMENT)/browser
	$(BIN)/python -m pytest tests/ -ra -n $(WORKERS) $(ARGS)

thorough: $(READY) $(ENVIRONMENT)/browser
	$(BIN)/python -m pytest tests/ -ra -n $(WORKERS) --thorough $(ARGS)

installed: # in temporary folders, and with nothing of this checkout but its wheel
	$(PYTHON) -m tests.installed $(CONSTRAINTS)

mutants: $(READY)
	$(BIN)/python -m tests.saboteurs.operators $(ARGS)

stability: $(READY)
	$(BIN)/python -m tests.stability 20 $(ARGS)

faults: $(READY) # every day others: those of a day again with SEED
	$(BIN)/python -m tests.run_faults --seed $(SEED) --count 1000 $(ARGS)

foreign: # fails where one of them does, and only after both were asked
	$(PYTHON) -m venv $(ENVIRONMENT)-foreign
	$(ENVIRONMENT)-foreign/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' \
		--requirement docs/foreign/requirements.txt $(addprefix --constraint ,$(CONSTRAINTS))
	failed=0; for module in keras_distribution haliax_fsdp; do \
		$(ENVIRONMENT)-foreign/bin/python -m pytest suites/ --impl docs.foreign.$$module $(ARGS) || failed=1; \
	done; exit $$failed

peers:
	$(PYTHON) -m venv $(ENVIRONMENT)-peers
	$(ENVIRONMENT)-peers/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test,peers]' \
		$(addprefix --constraint ,$(CONSTRAINTS))
	$(ENVIRONMENT)-peers/bin/python -m pytest tests/unit/benchmarks/test_peers.py $(ARGS)

benchmark: $(READY) # alone: what runs beside it is timed with it
	$(BIN)/python -m pytest benchmarks/ $(ARGS)

spec: $(READY)
	$(BIN)/meshproof spec
	$(BIN)/python -m docs.generated

lint: $(READY)
	$(BIN)/meshproof spec --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

clean:
	rm -rf .venv-python*

# The stamp is written last: an environment without it is half made, and is made anew from nothing.
$(READY): pyproject.toml $(CONSTRAINTS)
	rm -rf $(ENVIRONMENT)
	$(PYTHON) -m venv $(ENVIRONMENT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]' \
		$(addprefix --constraint ,$(CONSTRAINTS))
	touch $@

# Tried once in each environment: where no browser can be had, the tests go on and say so.
$(ENVIRONMENT)/browser: $(READY)
	$(BIN)/python -m tests.browser
	touch $@
