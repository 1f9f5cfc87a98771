# Everything runs in .venv, made with $(PYTHON); `make help` lists the targets.
# Stamps inside .venv say what is installed, so a second run starts at once.

.DELETE_ON_ERROR:
.PHONY: demo test bench lint clean help debian-packages

# The first that runs and can make a venv: a version manager's stub may not run, Debian's may lack ensurepip.
# harness itself runs on 3.10 too; the pins of constraints.txt start at 3.11.
ifndef PYTHON
PYTHON := $(shell for name in python3.11 python3 python3.13 python3.12; do \
    $$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
    && command -v $$name && break; done)
endif

# What the tests need from Debian: compilers and a debugger, a terminal, a second OpenMP runtime, another processor,
# hosts to look at over ssh, and a node of Slurm.
DEBIAN_PACKAGES = gcc g++ gdb tmux earlyoom libomp5-14 qemu-user libc6-arm64-cross openssh-server openssh-client sudo \
    iproute2 slurm-wlm
# Half of the time a test waits for a process, so one more than there are processors.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
# What looks at living processes and at time is run one by one.
ALONE = tests/live tests/bench tests/zoo/test_hangs.py
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml constraints.txt native/build.py $(wildcard native/*.c native/*.h)

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

demo: .venv/repro.stamp  ## which component kills it, in two environments; slow or stuck; every suspect (3 minutes)
	@$(BIN)/python -m tests.demo

test: lint  ## lint, then every test; ends with the list of skips
	@echo "pytest"
	@$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS) $(ALONE:%=--ignore=%)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) $(ALONE)

bench: .venv/dev.stamp  ## what supervision costs, as ratios against a bare run
	@$(BIN)/python -m tests.bench

lint: .venv/dev.stamp  ## ruff, mypy --strict, clang-format
	@echo "ruff, mypy, clang-format"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { $(BIN)/ruff format --diff --quiet; echo "next: $(BIN)/ruff format"; exit 1; }
	@$(BIN)/mypy --strict --no-error-summary harness
	@$(BIN)/clang-format --dry-run -Werror native/*.c native/*.h

clean:  ## remove .venv and everything built
	@rm -rf .venv build dist harness/libharness.* .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 that can make a venv (constraints.txt needs one); next: apt-get install python3-venv, or make PYTHON=/path/to/python3"; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

.venv/repro.stamp: $(SOURCES) | .venv/bin/python
	@$(BIN)/python tests/download_size.py repro
	@echo "installing harness, torch, faiss-cpu and numpy into .venv (the first time this takes minutes)"
	@$(PIP) install --quiet -c constraints.txt -e '.[repro]'
	@touch $@

.venv/dev.stamp: $(SOURCES) | debian-packages .venv/bin/python
	@echo "installing harness, torch, faiss-cpu, numpy and the test tools into .venv (the first time this takes minutes)"
	@$(PIP) install --quiet -c constraints.txt -e '.[repro,dev]'
	@touch .venv/repro.stamp $@

# One by one and never fatal: a release without one of them still gets the others, and tests name what they miss.
debian-packages:
	@command -v dpkg-query >/dev/null || exit 0; \
	for name in $(DEBIAN_PACKAGES); do \
	    dpkg-query -W -f '$${db:Status-Status}\n' $$name 2>/dev/null | grep -qx installed || missing="$$missing $$name"; \
	done; \
	test -n "$$missing" || exit 0; \
	if [ "$$(id -u)" != 0 ]; then \
	    echo "some tests will be skipped; to run them: sudo apt-get install$$missing"; exit 0; \
	fi; \
	echo "apt-get install$$missing"; \
	apt-get update -qq || echo "apt-get update failed; trying with the package lists as they are"; \
	for name in $$missing; do \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$name >/dev/null \
	        || echo "$$name could not be installed; the tests that need it will be skipped"; \
	done
