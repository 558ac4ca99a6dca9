# Every target makes .venv itself, once, and uses it again; after that no network is needed. PYTHON=python3.12 chooses an
# interpreter: versions other than that of .venv have environments of their own, in .venv-3.12 and so on.
#
#   make demo     run DMRG on 20 spins, differentiate it through every sweep, and save a picture of that in build/
#   make test     format, lint, types, layers and the whole test suite, a quarter of what depends on rounding also as another
#                 processor would compute it, as CI does
#   make test-kernels  what depends on rounding, as several kinds of processors would compute it; a tenth of an hour each
#   make test-nightly  what is left out of the suite because it takes long
#   make test-browser  pages of reports in Chromium, at three widths, if it is installed with its driver
#   make test-sanitizers  the C parts under AddressSanitizer and UndefinedBehaviorSanitizer
#   make wheel    build a wheel in dist/ and try it in an empty environment
#   make test-array-api  the test suite of the array API standard, from a copy of it: ARRAY_API_TESTS=path
#   make test-ecosystem  the library beside the packages it is used with: autoray, quimb, PyTorch, JAX, xarray and others
#   make bench    measure the workloads beside other libraries; WORKLOAD=B3 SIZE=small for one of them
#   make performance-page  write docs/performance.md, and the table of the README, from the last run of all workloads
#   make docs     run the recipes and build the site of the documentation into build/site, to be read and searched without a network
#   make forms-page  measure the forms of a loop and write the table of docs/forms.md
#   make report-pictures  take the pictures of the page on reports, in Chromium
#   make recipes  draw the pictures of the recipes, and write their tables from what was measured last
#   make names-page  write docs/names.md, the names of NumPy, SciPy and JAX beside ours
#   make bench-parts  measure overhead, loops, their kinds, linear algebra, schedules, memory and the tables of the networks
#   make fix      format and fix what can be fixed
#   make clean    remove the environment and all caches

PYTHON ?= python3
WORKERS ?= 2
ARRAY_API_TESTS ?= ../array-api-tests
EXAMPLES ?= 100
WORKLOAD ?=
SIZE ?= medium
PARTS ?= overhead loops native watching gradient_in_loop second_order batches ensembles zoo/run linalg schedules memory spooling nan_in_peers networks_als networks_ctmrg \
	networks_dmrg networks_tebd networks_transport networks_trg

# An environment belongs to one version of Python, and .venv to that of the first call.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VERSION_OF_VENV := $(shell sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2> /dev/null)
VENV := .venv$(if $(filter-out $(VERSION),$(VERSION_OF_VENV)),-$(VERSION))
BIN := $(VENV)/bin
# What the installed package has to be built again for.
BUILT_FROM := pyproject.toml setup.py $(wildcard src/core/* src/native/*)
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

# Parallel test workers must not each start as many BLAS threads as there are cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-kernels test-nightly test-sanitizers wheel test-array-api test-ecosystem docs bench performance-page \
	forms-page report-pictures recipes names-page bench-parts fix clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.core
	@mkdir -p build
	@$(BIN)/unspool demo dmrg --output build/unspool-dmrg.png

test: $(VENV)/.test
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict
	@report=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$report"; exit 1; }
	@$(BIN)/python -m pytest -q -n $(WORKERS)
	@$(BIN)/python -m tests.kernels --other --share 4 --workers $(WORKERS)

test-kernels: $(VENV)/.test
	@$(BIN)/python -m tests.kernels --workers $(WORKERS)

test-nightly: $(VENV)/.test
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m nightly

test-browser: $(VENV)/.browser
	@$(BIN)/python -m pytest -q -m browser tests/report

# A copy of the package whose C parts check themselves; Python itself leaks on purpose when it ends.
SANITIZED := build/sanitized
test-sanitizers: $(VENV)/.test
	@rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src/unspool $(SANITIZED)/unspool
	@rm -f $(SANITIZED)/unspool/*.so
	@CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1" \
		$(BIN)/python setup.py -q build_ext --build-temp $(SANITIZED)/temp --build-lib $(SANITIZED)
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		PYTHONPATH=$(SANITIZED) $(BIN)/python -m pytest -q -p no:cacheprovider tests/test_core.py tests/saving/test_journal.py \
		tests/saving/test_encoder.py tests/engine/test_running.py tests/engine/backends/test_resizable.py tests/engine/memory/test_units.py tests/engine/memory/test_ledger.py tests/engine/memory/test_replay.py \
		tests/engine/backends/test_native*.py tests/autodiff/loops/test_whole.py

wheel: $(VENV)/.core
	@$(PIP) wheel --no-deps -w dist .
	@$(BIN)/python -m tests.wheel dist

# The suite is a repository of its own, with the standard as a submodule; it is not part of this one.
test-array-api: $(VENV)/.test
	@test -e $(ARRAY_API_TESTS)/array-api/src || { echo "there is no test suite in $(ARRAY_API_TESTS); get it by\n\
	  git clone --recurse-submodules https://github.com/data-apis/array-api-tests $(ARRAY_API_TESTS)\n\
	or say where it is: make test-array-api ARRAY_API_TESTS=path"; exit 1; }
	@$(PIP) install -r $(ARRAY_API_TESTS)/requirements.txt
	@cd $(ARRAY_API_TESTS) && ARRAY_API_TESTS_MODULE=unspool $(CURDIR)/$(BIN)/python -m pytest -q array_api_tests \
		-n $(WORKERS) -p no:cacheprovider --max-examples $(EXAMPLES) --disable-deadline \
		--xfails-file $(CURDIR)/tests/array_api/expected-failures.txt

ecosystem: $(VENV)/.ecosystem

test-ecosystem: $(VENV)/.ecosystem
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m ecosystem tests/interop tests/ensembles tests/test_docs.py

bench: $(VENV)/.bench
	@$(BIN)/python bench/suite/run.py --size $(SIZE) $(if $(WORKLOAD),--workload $(WORKLOAD))

performance-page: $(VENV)/.bench
	@$(BIN)/python bench/suite/page.py
	@$(BIN)/python docs/tables.py

forms-page: $(VENV)/.bench
	@$(BIN)/python bench/form_costs.py

# What is said of the end of the tool's life is no warning about a page.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

report-pictures: $(VENV)/.browser
	@$(BIN)/python docs/report_pictures.py

recipes: $(VENV)/.bench
	@$(BIN)/python docs/recipes/make.py

names-page: $(VENV)/.core
	@$(BIN)/python docs/names.py

bench-parts: $(VENV)/.bench
	@missed=0; for script in $(PARTS); do $(BIN)/python bench/$$script.py || missed=1; done; exit $$missed

fix: $(VENV)/.test
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-* build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf src/*.egg-info src/unspool/_core.*.so src/unspool/_core.*.pyd src/unspool/_native.*.so src/unspool/_native.*.pyd
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment: one stamp for each set of packages --------------------------------------------------------------

$(BIN)/python:
	@echo "making $(VENV) with Python $(VERSION)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool"
	@$(PIP) install -e .[plot]
	@touch $@

$(VENV)/.test: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool and what its tests need"
	@$(PIP) install -e .[test]
	@touch $@ $(VENV)/.core

$(VENV)/.browser: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool, what its tests need and what drives a browser"
	@$(PIP) install -e .[test,browser]
	@touch $@ $(VENV)/.core $(VENV)/.test

$(VENV)/.bench: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool and the libraries it is measured beside"
	@$(BIN)/python -m pip install -qq torch==2.13.0
	@$(PIP) install -e .[bench]
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool and what makes its site"
	@$(PIP) install -e .[docs]
	@touch $@ $(VENV)/.core

$(VENV)/.ecosystem: $(BUILT_FROM) | $(BIN)/python
	@echo "installing unspool, what its tests need and the packages it is used with"
	@$(BIN)/python -m pip install -qq torch==2.13.0
	@$(PIP) install -e .[test,ecosystem]
	@touch $@ $(VENV)/.core $(VENV)/.test
