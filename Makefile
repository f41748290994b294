# Two commands are all a new user types: `make demo` and `make test`. Each installs what is missing.
SHELL := /bin/bash
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13) python3)
BIN := .venv/bin
PYTEST_ARGS ?=

.PHONY: demo root test test-image test-tools test-browser browser fuzz chaos check bench clean system

# Not the script `agent`: its first line cannot hold a path with a space.
demo: root .venv/ready system
	@$(BIN)/python -m agent demo $(DEMO_ARGS)

root:
	@[ "$$(id -u)" = 0 ] || { echo "make demo needs root: it makes network namespaces, sets packet filter rules in them and runs a pod there; run 'sudo make demo'"; exit 1; }

# Half of their time tests wait, so two run at once: file by file, in the order of pyproject.toml.
test: .venv/ready system test-tools .venv/libiptc
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Builds the image, without a daemon, and runs injected pods from its file system. Needs root and the
# package archives; BASE names another image to build on.
test-image: .venv/ready system
	PYTEST="$(CURDIR)/$(BIN)/python -m pytest $(PYTEST_ARGS)" tests/image/build.sh

# Looks at the page for people with a Chromium.
test-browser: .venv/ready system browser
	$(BIN)/python -m pytest -m browser tests/browser $(PYTEST_ARGS)

# Draws far more than `make test` does: configurations for each backend of traffic capture, and
# twenty times as many hostile requests to the status port.
FUZZ_EXAMPLES ?= 1000
FUZZ_TESTS := tests/netns/test_iptables_packets_explained.py tests/process/test_status_fuzz.py
fuzz: .venv/ready system
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest --timeout=0 $(FUZZ_TESTS) $(PYTEST_ARGS)

# A control plane that does its worst, agents that are killed, all under traffic: two minutes.
CHAOS_SECONDS ?= 10
chaos: .venv/ready system
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest --timeout=0 tests/envoy/test_xds_chaos.py $(PYTEST_ARGS)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: export GRPC_VERBOSITY = NONE
bench: .venv/ready system
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit; done

clean:
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage *.egg-info 2>/dev/null && \
	  find . -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || \
	  { echo "some files are another user's, as after 'sudo make demo'; run 'sudo make clean'"; exit 1; }

# $(call need,TOOLS,PACKAGES): root installs the packages that are missing; anybody else is told what to run.
define need
@missing=; for tool in $(1); do PATH=$$PATH:/usr/sbin:/sbin command -v $$tool >/dev/null || missing=1; done; \
if [ -n "$$missing" ]; then \
  if [ "$$(id -u)" = 0 ]; then echo "installing system packages: $(2)"; \
    apt-get update -qq && DEBCONF_NOWARNINGS=yes DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; \
  else echo "missing system packages; run as root: apt-get install -y $(2)"; fi; fi
endef

# Tools of the kernel's packet filter, and what ties Envoy's life to the agent's.
system:
	$(call need,iptables nft setpriv,iptables nftables util-linux)

# A compiler for python-iptables, which comes as source; other people's resolvers for the DNS proxy.
test-tools:
	$(call need,gcc dig musl-gcc,gcc libc6-dev bind9-dnsutils musl-tools)

# 124 MB to download, 350 MB on disk.
browser:
	$(call need,chromium,chromium)

.venv/ready: pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || [ "$$(id -u)" = 0 ] || \
	  { echo "this Python cannot make a venv; run as root: apt-get install -y python3-venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "installing system packages: python3-venv"; \
	  apt-get update -qq && DEBCONF_NOWARNINGS=yes DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null; }
	@echo "creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@echo "installing Python packages (about 60 MB, some 20 seconds)"
	@set -o pipefail; PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	  -e '.[dev]' | grep --line-buffered -oE '^(Collecting [A-Za-z0-9_.-]+|Installing|Successfully installed)' | sed -u 's/^/  /'
	@$(BIN)/python -m compileall -q agent bootstrap iptables
	@touch $@

.venv/libiptc: .venv/ready | test-tools
	@if command -v gcc >/dev/null; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -c constraints.txt -e '.[libiptc]' && touch $@; \
	  else echo "no compiler: libiptc is not tested"; fi
