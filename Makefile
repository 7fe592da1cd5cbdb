# make serve   set everything up, build the book, serve it on 127.0.0.1
# make test    set everything up, run every test
# The rest: make help

PYTHON ?= python3
PORT ?= 8000
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
READY := $(VENV)/ready

.PHONY: help serve test book lab bench soak mutants lint clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

serve: book ## build the book and serve it on 127.0.0.1 (PORT=8000)
	$(BIN)/python tools/serve.py --port $(PORT)

test: book ## run every test: units, chapters, the book in a browser
	$(BIN)/python tools/browser.py
	$(BIN)/python -m pytest -m "not browser and not soak" --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest -m browser --numprocesses 2
	$(BIN)/python -m pytest --nbval-lax --durations 10 chapters

book: $(READY) ## build the book into _build/html; warnings and failing cells are errors
	$(BIN)/jupyter-book build --warningiserror --keep-going .

soak: $(READY) ## run the tests that take minutes: hundreds of faults in a row
	$(BIN)/python -m pytest -m soak

lab: $(READY) ## open the chapters in JupyterLab
	$(BIN)/jupyter lab chapters

bench: book ## print how fast and how heavy everything is
	$(BIN)/python tools/browser.py
	$(BIN)/python -m tests.bench

mutants: $(READY) ## change the formulas one thing at a time: do the tests notice? (MODULES="memory barrier")
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0
	$(BIN)/python tools/mutants.py $(MODULES)

lint: $(READY) ## check style and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

clean: ## remove what was built, keep the environment
	rm -rf _build .pytest_cache .hypothesis

$(READY): requirements.txt pyproject.toml
	$(PYTHON) tools/python_version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt --editable .
	@echo ready > $@
