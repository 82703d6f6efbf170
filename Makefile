# Two ways in: `make` sets up .venv and runs a study, `make test` sets it up and checks everything.
# Setting up is left to workflow/install.py, which returns at once when nothing has changed.

PYTHON ?= python3
VENV ?= .venv
VENV_VLLM ?= .venv-vllm
VENV_SLURM ?= .venv-slurm
CORES ?= all
STUDY ?=
PYTEST_ARGS ?=
ONLY ?=

# Jobs must find the environment's own python first; the recipes alone, so that PYTHON stays the user's.
run := PATH="$(abspath $(VENV))/bin:$$PATH"
# One thread: the models there are tiny, and threads of a busy machine wait for one another.
run-vllm := OMP_NUM_THREADS=1 PATH="$(abspath $(VENV_VLLM))/bin:$$PATH"
run-slurm := PATH="$(abspath $(VENV_SLURM))/bin:$$PATH"

.DEFAULT_GOAL := study
.DELETE_ON_ERROR:
.PHONY: install install-test install-vllm install-slurm study test test-vllm test-paper test-slurm \
	bench bench-vllm reference clean help

## make                     set up, then run the default study on all cores
## make STUDY=smoke CORES=2 the same for another study (config/studies), on two cores
study: install
	$(run) python workflow/run.py --cores $(CORES) $(if $(STUDY),--config study=$(STUDY))

## make test                set up with the test tools, then run every test and style check
## make test PYTEST_ARGS='-m "not slow"'
test: install-test
	$(run) pytest $(PYTEST_ARGS)

## make test-vllm           set up vLLM, in an environment of its own, and run the tests that need it
test-vllm: install-vllm
	$(run-vllm) pytest -m vllm tests/test_vllm.py $(PYTEST_ARGS)

## make test-paper          the paper's whole study, its models replaced by small random ones, and
##                          vLLM on them; SAGE_MIRROR names the folder with the benchmarks' files
test-paper: install-vllm
	$(if $(SAGE_MIRROR),,$(error SAGE_MIRROR names no folder with the benchmarks' files))
	SAGE_WHOLE_PAPER=1 $(run-vllm) pytest tests/test_paper_study.py $(PYTEST_ARGS)

## make test-slurm          set up the SLURM executor, in an environment of its own, and test it on a
##                          cluster of one node: as root, after apt-get install slurm-wlm munge
test-slurm: install-slurm
	$(run-slurm) pytest -rs -m slurm tests/test_slurm.py $(PYTEST_ARGS)

## make bench               speed against the naive way: ratios of paired runs
## make bench ONLY=training one of benchmarks/*.py
bench: install-test
	$(run) python -m benchmarks $(ONLY)

## make bench-vllm          the benchmark that needs vLLM
bench-vllm: install-vllm
	$(run-vllm) python -m benchmarks vllm

## make reference           write config/README.md's tables and the editors' schemas from the types
reference: install
	$(run) python -m sage.reference

## make install             set up only (PYTHON=python3.12, VENV=/elsewhere/venv)
install:
	@$(PYTHON) workflow/install.py "$(VENV)"

install-test:
	@$(PYTHON) workflow/install.py "$(VENV)" --extra test

install-vllm:
	@$(PYTHON) workflow/install.py "$(VENV_VLLM)" --extra test --extra vllm --extra gpu

install-slurm:
	@$(PYTHON) workflow/install.py "$(VENV_SLURM)" --extra test --extra slurm

## make clean               remove caches; results and environments stay
clean:
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info
	find sage tests workflow -name __pycache__ -prune -exec rm -rf {} +

help:
	@sed -n 's/^## //p' Makefile
