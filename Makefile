# Each target sets up what it needs. `make help` lists them.

PYTHON ?= python3
GPU_PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
TRL := .venv-trl
ART := .venv-art
UNSLOTH := .venv-unsloth
HARBOR := .venv-harbor
NEWEST := .venv-aviato-newest
NEWEST_VENV := .venv-newest
# The newest Python that the service supports, as `make test-newest-python` finds it.
NEWEST_PYTHON ?= $(firstword $(wildcard /usr/local/bin/python3.13 /usr/bin/python3.13 \
	$(HOME)/.pyenv/versions/3.13.*/bin/python3.13) python3.13)
HARBOR_PYTHON ?= $(firstword $(wildcard /usr/local/bin/python3.12 /usr/bin/python3.12 \
	$(HOME)/.pyenv/versions/3.12.*/bin/python3.12) python3.12)
# What `make test` leaves to targets of their own, each `make test-NAME`, and where those tests lie.
SUITES := agents attacks aviato benchmarks compat console deploy faults images journal languages \
	replicas versions
FOLDERS_agents := core/agents features/rollouts/suite
FOLDERS_console := features/journal/console
FOLDERS_images := features/environments/suite features/repositories/suite
$(foreach each,aviato compat journal languages replicas,$(eval FOLDERS_$(each) := features/$(each)/suite))
# All tests of a feature, those that `make test` runs and those of its suites.
FEATURE = $(wildcard $(addprefix tests/features/$(NAME),/ /suite /console))
ADAPTERS := $(basename $(notdir $(wildcard tests/trainers_adapters/requirements/*.txt)))
CODE := client service trainers tests bench deploy/sbom.py
DIST ?= dist
IMAGE ?= proctor:latest
BUILDAH ?= buildah
SMOKE ?= 1
# Processes of one suite; CI runs two suites at a time, with one process each.
JOBS ?= 2
# A test that hangs, and a process of tests that dies, end the run: pytest-xdist would wait forever.
IN_PARALLEL = -n $(JOBS) --dist loadfile --max-worker-restart 0 \
	-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# uv, which is installed with the service, makes the environments of trainers: it unpacks a package such as
# torch once for all of them. It reads variables and files of its own (UV_DEFAULT_INDEX, …) and not pip.conf.
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
# Commands start from compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-trl install-art install-harbor install-adapters serve demo demo-train dist test-fast test-newest-python test test-all test-programs $(SUITES:%=test-%) test-feature test-trl test-art test-unsloth test-unsloth-gpu test-harbor test-adapters $(ADAPTERS:%=test-adapter-%) test-aviato-newest lint generate format test-cgroup2 image pin-base bench fuzz mutants clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.service: constraints.txt client/pyproject.toml service/pyproject.toml trainers/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Proctor needs Python 3.11 or later; say which with PYTHON=…"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e client -e service -e trainers
	touch $@

$(VENV)/.tools: $(VENV)/.service requirements-dev.txt
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -r requirements-dev.txt
	touch $@

install: $(VENV)/.service ## make .venv with the service, the client and the command line

serve: $(VENV)/.service ## run the service on 127.0.0.1:8080, or at PROCTOR_HOST and PROCTOR_PORT
	$(BIN)/proctor serve

demo: $(VENV)/.service ## judge a few toy completions against a service of its own
	$(BIN)/python -m proctor_trainers.demo

demo-train: $(VENV)/.service ## train a tiny policy by rewards of a service of its own; ARGS='--seed 1'
	$(BIN)/python -m proctor_trainers.demo_train $(ARGS)

dist: $(VENV)/.service ## build wheels of the client, the service and the trainers in dist/, or in DIST
	rm -rf $(DIST)
	$(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --wheel-dir $(DIST) ./client ./service ./trainers

test-fast: $(VENV)/.tools ## run the tests that start no service, and a few with real sandboxes
	$(BIN)/python -m pytest $(IN_PARALLEL) -m "not (slow or service) or smoke"

test-newest-python: ## the same tests with Python 3.13, in .venv-newest; NEWEST_PYTHON=… for another
	$(MAKE) test-fast VENV=$(NEWEST_VENV) PYTHON=$(NEWEST_PYTHON)

test: $(VENV)/.tools ## run the tests of the core, which need nothing but what pip installs
	$(BIN)/python -m pytest $(IN_PARALLEL) --no-loadscope-reorder

test-all: test $(SUITES:%=test-%) test-trl test-art test-unsloth test-harbor test-adapters ## run everything, feature by feature; needs `make test-programs`

test-programs: ## install the programs that suites need, from Debian and npm; as root
	$(PYTHON) tests/support/needed_programs.py install

# Each suite says which programs it needs and does not find.
$(SUITES:%=test-%): test-%: $(VENV)/.tools
	$(BIN)/python -m pytest --show-capture=stdout $(IN_PARALLEL) $(addprefix tests/,$(or $(FOLDERS_$*),$*))

test-feature: $(VENV)/.tools ## all tests of one feature, NAME=journal
	@test -n "$(NAME)" -a -d "tests/features/$(NAME)" || \
		{ echo "Name a feature: make test-feature NAME=…, one of $(filter-out conftest.py __pycache__,$(notdir $(wildcard tests/features/*)))"; exit 1; }
	$(BIN)/python -m pytest --show-capture=stdout $(IN_PARALLEL) $(FEATURE)

test-agents: ## rollouts with tools, and gradings of sandboxes that agents have tampered with
test-attacks: ## hostile programs and agents, as root and as an ordinary user
test-aviato: ## Aviato's backend, with a stand-in for its gateway
test-benchmarks: ## the benchmarks measure and draw all that they say
test-compat: ## the routes of other services, with real sandboxes
test-console: ## the pages under /console in a browser
test-deploy: $(VENV)/.deploy ## the image, the manifests and the alerts; as root
test-faults: ## replicas behind nginx with Redis and PostgreSQL, and what happens to them
test-images: ## environments, images and Harbor's tasks
test-journal: ## the journal, its commands and replays
test-languages: ## programs and tests in every language
test-replicas: ## judge processes, and batches over several replicas
test-versions: ## older interpreters, versions of pytest, clients and journals

$(TRL)/.trainer: constraints-trl.txt client/pyproject.toml trainers/pyproject.toml | $(VENV)/.service
	test -x $(TRL)/bin/python || $(UV) venv --python $(PYTHON) $(TRL)
	$(UV) pip install --python $(TRL)/bin/python -c constraints-trl.txt \
		-e client -e 'trainers[trl,wandb]' pytest
	touch $@

install-trl: $(TRL)/.trainer ## make .venv-trl with TRL; install-art and install-harbor make others

install-art: $(ART)/.trainer

install-harbor: $(HARBOR)/.harbor

test-trl: $(VENV)/.service $(TRL)/.trainer ## train with TRL on a CPU, in .venv-trl
	$(TRL)/bin/python -m pytest tests/trainers_trl

$(ART)/.trainer: constraints-art.txt client/pyproject.toml trainers/pyproject.toml | $(VENV)/.service
	test -x $(ART)/bin/python || $(UV) venv --python $(PYTHON) $(ART)
	$(UV) pip install --python $(ART)/bin/python -c constraints-art.txt \
		-e client -e 'trainers[art,wandb]' pytest
	touch $@

test-art: $(VENV)/.service $(ART)/.trainer ## train with ART without a GPU, in .venv-art
	$(ART)/bin/python -m pytest tests/trainers_art

# Without what it says it needs: on a CPU that would be several GB of CUDA packages.
# Compiled here: a compiler warning about one of its packages would be an error of the tests.
$(UNSLOTH)/.trainer: constraints-unsloth.txt client/pyproject.toml trainers/pyproject.toml | $(VENV)/.service
	test -x $(UNSLOTH)/bin/python || $(UV) venv --python $(PYTHON) $(UNSLOTH)
	$(UV) pip install --python $(UNSLOTH)/bin/python --no-deps --compile-bytecode \
		-r constraints-unsloth.txt -e client -e trainers
	touch $@

test-unsloth: $(VENV)/.service $(UNSLOTH)/.trainer ## Unsloth's trainer on a CPU, in .venv-unsloth
	$(UNSLOTH)/bin/python -m pytest tests/trainers_unsloth

test-unsloth-gpu: $(VENV)/.service ## train with Unsloth on a GPU, with GPU_PYTHON=…
	PYTHONPATH=client:trainers $(GPU_PYTHON) -m pytest -m gpu tests/trainers_unsloth

$(HARBOR)/.harbor: constraints-harbor.txt client/pyproject.toml trainers/pyproject.toml | $(VENV)/.service
	@$(HARBOR_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
		{ echo "Harbor needs Python 3.12; say which with HARBOR_PYTHON=…"; exit 1; }
	test -x $(HARBOR)/bin/python || $(UV) venv --python $(HARBOR_PYTHON) $(HARBOR)
	$(UV) pip install --python $(HARBOR)/bin/python -c constraints-harbor.txt \
		-e client -e 'trainers[harbor]' pytest
	touch $@

test-harbor: $(VENV)/.service $(HARBOR)/.harbor ## Harbor with sandboxes of a service, in .venv-harbor
	$(HARBOR)/bin/python -m pytest tests/trainers_harbor

# Without what the frameworks say they need: their rewards import a small part of it.
$(ADAPTERS:%=.venv-adapter-%/.trainer): .venv-adapter-%/.trainer: tests/trainers_adapters/requirements/%.txt client/pyproject.toml trainers/pyproject.toml | $(VENV)/.service
	test -x $(@D)/bin/python || $(UV) venv --python $(PYTHON) $(@D)
	$(UV) pip install --python $(@D)/bin/python --no-deps -r $< -e client -e trainers
	touch $@

install-adapters: $(ADAPTERS:%=.venv-adapter-%/.trainer) ## make the environments of test-adapters

$(ADAPTERS:%=test-adapter-%): test-adapter-%: $(VENV)/.service .venv-adapter-%/.trainer
	.venv-adapter-$*/bin/python -m pytest -p no:unraisableexception tests/trainers_adapters/test_$*.py

test-adapters: $(ADAPTERS:%=test-adapter-%) ## rewards in other frameworks, each in an environment of its own

# Each time with the newest SDK, and the newest of what only the SDK needs; all else is pinned.
test-aviato-newest: $(VENV)/.service ## Aviato's backend with the newest SDK and with wandb, in .venv-aviato-newest
	test -x $(NEWEST)/bin/python || $(UV) venv --python $(PYTHON) $(NEWEST)
	grep -vE '^(cryptography|cwsandbox|googleapis-common-protos|grpcio|protobuf|wandb)==' constraints.txt \
		> $(NEWEST)/constraints.txt
	$(UV) pip install --python $(NEWEST)/bin/python -c $(NEWEST)/constraints.txt \
		-e client -e service -r requirements-aviato-newest.txt
	$(UV) pip install --python $(NEWEST)/bin/python -c $(NEWEST)/constraints.txt \
		--upgrade 'cwsandbox[wandb]'
	$(NEWEST)/bin/python -m pytest tests/features/aviato/newest tests/features/aviato/suite

lint: $(VENV)/.tools ## ruff, and mypy in strict mode
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	MYPYPATH=client:service:trainers:tests/support:tests:bench $(BIN)/mypy $(CODE)

generate: $(VENV)/.tools ## generate the client for threads from the client for event loops
	$(BIN)/python client/generate.py

format: $(VENV)/.tools ## let ruff put the code in form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(VENV)/.tools ## figures and plots of this machine, beside its floor; QUICK=1 only tries it
	$(BIN)/python bench/figures.py $(if $(QUICK),--quick --out $(VENV)/plots)

fuzz: $(VENV)/.tools ## fuzz with 200 times as many cases as make test, and others each time; FUZZ=… for more
	PROCTOR_FUZZ=$(or $(FUZZ),20) $(BIN)/python -m pytest tests/fuzz

mutants: $(VENV)/.tools ## small faults in the service's code: which share do the tests notice; ARGS='--count 50'
	PYTHONPATH=bench $(BIN)/python -m mutants $(ARGS)

test-cgroup2: $(VENV)/.tools ## tests of cgroup v2 in user-mode Linux; says what it needs
	$(BIN)/python tests/cgroup2/boot.py $(ARGS)

$(VENV)/.deploy: $(VENV)/.tools requirements-deploy.txt
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -r requirements-deploy.txt
	touch $@

image: ## build the container image with buildah or docker; IMAGE, BASE_IMAGE, EXTRAS and SLIM=1 say which
	@IMAGE='$(IMAGE)' BASE_IMAGE='$(BASE_IMAGE)' EXTRAS='$(EXTRAS)' SLIM='$(SLIM)' SMOKE='$(SMOKE)' \
		BUILDAH='$(BUILDAH)' deploy/image.sh

pin-base: ## write the digest of the image's base into deploy/base-image.txt
	@BASE_IMAGE='$(BASE_IMAGE)' BUILDAH='$(BUILDAH)' deploy/image.sh pin

clean: ## remove what the other targets made
	rm -rf $(VENV) $(TRL) $(ART) $(UNSLOTH) $(HARBOR) $(NEWEST) $(NEWEST_VENV) $(ADAPTERS:%=.venv-adapter-%) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
