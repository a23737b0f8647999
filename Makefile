# Each target sets up what it needs. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := client service tests bench

.PHONY: help install serve demo test lint format bench clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.service: constraints.txt client/pyproject.toml service/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Proctor needs Python 3.11 or later; say which with PYTHON=…"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e client -e service
	touch $@

$(VENV)/.tools: $(VENV)/.service requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-dev.txt
	touch $@

install: $(VENV)/.service ## make .venv with the service, the client and the command line

serve: $(VENV)/.service ## run the service on 127.0.0.1:8080
	$(BIN)/proctor serve --host 127.0.0.1 --port 8080

demo: $(VENV)/.service ## judge a few toy completions against a service of its own
	$(BIN)/proctor demo

test: $(VENV)/.tools ## run all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.tools ## ruff, and mypy in strict mode
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	MYPYPATH=client:service:tests $(BIN)/mypy $(CODE)

format: $(VENV)/.tools ## let ruff put the code in form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(VENV)/.tools ## measure against the kernel's own cost
	$(BIN)/proctor bench

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
