# Everything runs in .venv (`check` in .venv-check, `docs` in .venv-docs), made with $(PYTHON); `make help` lists the targets.
# Stamps inside .venv say what is installed, so a second run starts at once.

.DELETE_ON_ERROR:
.PHONY: demo test check docs bench accuracy fuzz exhaustion killing soak lint interpreters clean help debian-packages

# Which makes .venv: the first that runs and can make a venv. A version manager's stub may not run, Debian's may lack
# ensurepip. harness itself runs on 3.10 too; the pins of constraints.txt start at 3.11.
PYTHON ?= python3.11 python3 python3.13 python3.12

# What the tests need from Debian: compilers and a debugger, a terminal, a second OpenMP runtime, another processor,
# hosts to look at over ssh, a node of Slurm, Rust.
DEBIAN_PACKAGES = gcc g++ gdb tmux earlyoom libomp5-14 qemu-user libc6-arm64-cross openssh-server openssh-client sudo \
    iproute2 slurm-wlm rustc
# Half of the time a test waits for a process, so one more than there are processors.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
PYTEST_ARGS ?=

BIN := .venv/bin
CHECK := .venv-check/bin
DOCS := .venv-docs/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml constraints.txt native/build.py $(wildcard native/*.c native/*.h)

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 21

demo: .venv/repro.stamp  ## which component kills it, in two environments; slow or stuck; every suspect (3 minutes)
	@$(BIN)/python -m tests.demo

test: lint  ## lint, then every test, in two halves; ends with what failed in either
	@$(BIN)/python -m tests.halves $(WORKERS) $(PYTEST_ARGS)

check: .venv-check/check.stamp  ## ruff, mypy, unit and contract tests, without torch, faiss or zig (a minute)
	@echo "ruff, mypy, pytest tests/unit tests/contract"
	@$(CHECK)/ruff check --quiet
	@$(CHECK)/ruff format --check --quiet
	@$(CHECK)/mypy --strict --no-error-summary harness
	@$(CHECK)/python -m pytest -q -n $(WORKERS) $(PYTEST_ARGS) tests/unit tests/contract

docs: .venv-docs/docs.stamp  ## the documentation as a site, into build/site; a broken link is an error
	@$(DOCS)/python -m docs.generate
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/mkdocs build --quiet --strict --config-file docs/mkdocs.yml
	@echo "build/site/index.html"

bench: .venv/dev.stamp  ## what supervision costs, as ratios against a bare run
	@$(BIN)/python -m tests.bench

accuracy: .venv/dev.stamp  ## how often the zoo's verdicts are true, idle and loaded, beside faulthandler, pystack, py-spy
	@$(BIN)/python -m tests.accuracy

fuzz: SECONDS ?= 600
fuzz: .venv/dev.stamp  ## hostile answers for every reader of what others have written (SECONDS=600)
	@$(PIP) install --quiet -c constraints.txt atheris 2>/dev/null || true
	@nice $(BIN)/python -m tests.fuzz $(SECONDS)

exhaustion: .venv/dev.stamp  ## each call of the crash path refused once, in the supervisor and in what dies (20 minutes)
	@nice $(BIN)/python -m tests.zoo.exhaustion

killing: TRIALS ?= 1000
killing: SEED ?= 1
killing: .venv/dev.stamp  ## supervisor, relays and tools killed together while a job runs or crashes (TRIALS=1000 SEED=1)
	@nice $(BIN)/python -m tests.live.killing $(TRIALS) $(SEED)

soak: SECONDS ?= 3600
soak: SEED ?= 1
soak: .venv/dev.stamp  ## jobs beside untouched twins while all goes wrong: kills, looks, full disks (SECONDS=3600 SEED=1)
	@nice $(BIN)/python -m tests.live.soaking $(SECONDS) $(SEED)

lint: .venv/dev.stamp  ## ruff, mypy --strict, clang-format
	@echo "ruff, mypy, clang-format"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { $(BIN)/ruff format --diff --quiet; echo "next: $(BIN)/ruff format"; exit 1; }
	@$(BIN)/mypy --strict --no-error-summary harness
	@$(BIN)/clang-format --dry-run -Werror native/*.c native/*.h

interpreters: .venv/dev.stamp  ## fetch or build 3.13t, 3.14, 3.14t and 3.15 into the user's cache; `make test` uses them
	@$(BIN)/python -m tests.interpreters

clean:  ## remove .venv and everything built
	@rm -rf .venv .venv-check .venv-docs build dist harness/libharness.* .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian keeps what makes a venv apart from its Python; root gets it, others are told how.
.venv/bin/python .venv-check/bin/python .venv-docs/bin/python:
	@find_python() { for name in $(PYTHON); do \
	    $$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	    && command -v $$name && break; done; }; \
	python=$$(find_python); \
	if [ -z "$$python" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "apt-get install python3-venv"; \
	    apt-get update -qq || echo "apt-get update failed; trying with the package lists as they are"; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends python3-venv >/dev/null; \
	    python=$$(find_python); \
	fi; \
	test -n "$$python" || { echo "no Python >= 3.11 that can make a venv (constraints.txt needs one); next: sudo apt-get install python3-venv, or make PYTHON=/path/to/python3"; exit 1; }; \
	echo "making $(@:%/bin/python=%) with $$python"; \
	$$python -m venv $(@:%/bin/python=%)

.venv/repro.stamp: $(SOURCES) | .venv/bin/python
	@$(BIN)/python tests/download_size.py repro demo
	@echo "installing harness, torch, faiss-cpu, numpy and intel-openmp into .venv (the first time this takes minutes)"
	@$(PIP) install --quiet -c constraints.txt -e '.[repro,demo]'
	@touch $@

.venv/dev.stamp: $(SOURCES) | debian-packages .venv/bin/python
	@echo "installing harness, torch, faiss-cpu, numpy and the test tools into .venv (the first time this takes minutes)"
	@$(PIP) install --quiet -c constraints.txt -e '.[repro,dev]'
	@touch .venv/repro.stamp $@

.venv-check/check.stamp: $(SOURCES) | .venv-check/bin/python
	@echo "installing harness and the tools of its quick tests into .venv-check"
	@$(CHECK)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e '.[check]'
	@touch $@

.venv-docs/docs.stamp: $(SOURCES) | .venv-docs/bin/python
	@echo "installing harness and mkdocs into .venv-docs"
	@$(DOCS)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

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
