# Each target installs all it needs into .venv first.
PYTHON ?= python3
GPU_PYTHON ?= $(PYTHON)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# What is asked of kernels is asked of plain torch as well, which is what machines without them run.
EITHER_WAY := tests/kernels tests/layers tests/decoding tests/contracts/test_models.py tests/contracts/test_decoding.py \
              tests/contracts/test_encoders.py tests/contracts/test_protocols.py

# What is compiled once serves every process of the tests; where this is set, each would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE

# A browser leaves an event loop running in its process, and asyncio starts none beside it.
APART := --ignore tests/browser

.PHONY: help install demo test test-all test-kernels test-browser test-gpu check format generated bench clean

help:          ## what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*##/\t/' | expand -t 12

install: .venv/use          ## mallang itself, with pictures

demo: .venv/use             ## train Korean to English on miniworld, translate, draw the attention
	$(BIN)/mallang demo

test: .venv/develop check test-kernels  ## what every change must pass
	$(BIN)/python -m pytest -n 2 -m "not slow" $(APART)
	MALLANG_KERNELS=off $(BIN)/python -m pytest -n 2 -m "not slow" $(EITHER_WAY)

test-all: .venv/develop check test-kernels  ## also compilation, kills and long cases, all of it without kernels too
	$(BIN)/python -m pytest -n 2 $(APART)
	MALLANG_KERNELS=off $(BIN)/python -m pytest -n 2 $(APART)

test-kernels: .venv/develop .venv/triton  ## kernels written in triton, on a CPU by its interpreter
	TRITON_INTERPRET=1 PYTHONPATH=.venv/triton $(BIN)/python -m pytest -n 2 -m kernels tests/kernels

test-browser: .venv/develop  ## pages in a real browser: Chromium is installed if there is none (apt-get)
	$(PIP) --editable '.[browser]'
	command -v chromium chromium-browser google-chrome > /dev/null || (apt-get update && apt-get install -y chromium)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/browser

test-gpu:                   ## on a GPU machine: GPU tests, then every recipe for some updates (SHARD=1/2, RECIPES=a,b)
	PYTHONPATH=src:tests $(GPU_PYTHON) -m gpu.gate

check: .venv/develop        ## format, lint, types
	$(BIN)/ruff format --check --quiet src tests benchmarks docs
	$(BIN)/ruff check --quiet src tests benchmarks docs
	$(BIN)/mypy --no-error-summary

format: .venv/develop       ## put the code into shape
	$(BIN)/ruff format src tests benchmarks docs
	$(BIN)/ruff check --fix src tests benchmarks docs

generated: .venv/develop    ## write the recipe schema and the map of the source tree again, after a change to src/mallang
	$(BIN)/python -m mallang.recipe
	$(BIN)/python docs/make_map.py

bench: .venv/develop        ## the claims about speed and memory, measured here
	$(BIN)/python -m benchmarks

clean:                      ## forget the environment and what tools have cached
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/use: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) --editable '.[plots]'
	@touch $@

.venv/develop: .venv/use
	$(PIP) --editable '.[plots,data,track,export,ko,serve,dev]'
	@$(PIP) --editable '.[ngram]' > .venv/kenlm.log 2>&1 || printf '%s\n' \
	  'NOTICE: kenlm could not be built, so the tests against it are skipped. It needs a C++ compiler (g++);' \
	  '        what it said is in .venv/kenlm.log. After installing one: touch pyproject.toml, and make again.'
	@touch $@

# Apart from the rest, which is to run without it: torch for CPUs comes without triton.
.venv/triton: .venv/use
	$(PIP) --no-deps --upgrade --target $@ 'triton>=3.9,<4' || echo 'no triton for this machine: its kernels are skipped'
	@mkdir -p $@ && touch $@
