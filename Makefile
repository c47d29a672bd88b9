# `make` targets make the virtual environment once, under .venv; later runs start at once.
# make train ARGS="--steps 500"   passes arguments on to `llmlab train`.

VENV := .venv
BIN  := $(VENV)/bin
ARGS :=

# The first Python >= 3.11 on the path.
PYTHON := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.DEFAULT_GOAL := help
.PHONY: help train test test-gpu lab book lint clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: $(VENV)/.train ## train a small GPT on real text (about three minutes on a laptop)
	@$(BIN)/llmlab train $(ARGS)

test: $(VENV)/.dev ## run every test, the chapters' notebooks included
	$(BIN)/pytest -n 2 --dist loadfile -q $(ARGS)
	$(BIN)/llmlab check

test-gpu: $(VENV)/.dev ## run the tests that need a CUDA device, in this environment plus CuPy
	$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[gpu]'
	$(BIN)/pytest -m gpu -q $(ARGS)

lab: $(VENV)/.book ## open the book in JupyterLab
	@$(BIN)/llmlab lab $(ARGS)

book: $(VENV)/.book ## build the book as a static site that works offline
	@$(BIN)/llmlab book build $(ARGS) && $(BIN)/llmlab book open

lint: $(VENV)/.dev ## check style and the book's pairs
	$(BIN)/ruff check .
	$(BIN)/llmlab check --static

clean: ## remove the environment and caches (runs/ is kept)
	rm -rf $(VENV) .pytest_cache .ruff_cache

# Each stamp says that one set of extras is installed; a change of pyproject.toml or constraints.txt installs anew.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "llmlab needs Python 3.11 or newer, and none is on the path: see https://www.python.org/downloads/" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.train: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing llmlab (once)"
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e . && touch $@

$(VENV)/.book: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing llmlab and the book's tools (once, about a minute)"
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[book]' && touch $@ $(VENV)/.train

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing llmlab and the test tools (once, about a minute)"
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e '.[dev]' && touch $@ $(VENV)/.train $(VENV)/.book
