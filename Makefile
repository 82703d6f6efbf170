# Two commands: `make` sets up .venv and runs a study; `make test` sets it up and tests the code.
# workflow/install.py does the set-up; it returns at once if nothing has changed.

PYTHON ?= python3
VENV ?= .venv
VENV_VLLM ?= .venv-vllm
VENV_SLURM ?= .venv-slurm
VENV_DOCS ?= .venv-docs
CORES ?= all
STUDY ?=
PYTEST_ARGS ?=
TEST_CORES ?= 2
ONLY ?=

# Without bytecode every job compiles anew all that it imports, for seconds.
unexport PYTHONDONTWRITEBYTECODE

# Recipes must find the environment's python first; PYTHON itself stays the user's.
run := PATH="$(abspath $(VENV))/bin:$$PATH"
pytest = OMP_NUM_THREADS=1 $(run) pytest -n $(TEST_CORES) --dist loadfile \
	--no-loadscope-reorder --durations=10
# OMP_NUM_THREADS=1: models of tests are tiny, and threads of a busy machine wait for each other.
run-vllm := OMP_NUM_THREADS=1 PATH="$(abspath $(VENV_VLLM))/bin:$$PATH"
run-slurm := PATH="$(abspath $(VENV_SLURM))/bin:$$PATH"

.DEFAULT_GOAL := study
.DELETE_ON_ERROR:
.PHONY: install install-test install-vllm install-slurm study test test-slow test-all lint test-vllm \
	test-gpu test-paper test-slurm bench settings numbers bases picture lock docs clean help

## make                     set up, then run the default study on all cores: `sage-rlvr run`
## make STUDY=smoke CORES=2 run another study (config/studies) on two cores
study: install
	$(run) sage-rlvr run $(STUDY) --cores $(CORES)
	@echo 'For sage-rlvr and snakemake in a shell of your own: source $(VENV)/bin/activate'

## make docs                build the documentation as a site in site/, in an environment of its own
docs:
	$(PYTHON) -m venv "$(VENV_DOCS)"
	"$(VENV_DOCS)/bin/pip" install --quiet --no-input --require-hashes -r locks/docs.txt
	"$(VENV_DOCS)/bin/mkdocs" build --strict

## make test                set up with the test tools, then run the quick tests
## make test PYTEST_ARGS=tests/method/test_guides.py TEST_CORES=4
test: install-test
	$(pytest) -m "not slow and not lint" $(PYTEST_ARGS)

## make test-slow           the tests and style checks that `make test` leaves out
test-slow: install-test
	$(pytest) -m "slow or lint" $(PYTEST_ARGS)

## make test-all            every test and style check in one run
test-all: install-test
	$(pytest) $(PYTEST_ARGS)

## make lint                ruff, mypy, snakefmt, snakemake --lint, and the numbers of texts
lint: install-test
	$(pytest) -m lint tests/test_code_style.py tests/claims/test_numbers.py

## make test-vllm           set up vLLM in a separate environment, then run the tests that need it
test-vllm: install-vllm
	for tests in vllm vllm_training gpu_shapes; do \
		$(run-vllm) pytest -m vllm tests/*/test_$$tests.py $(PYTEST_ARGS) || exit 1; done
# Each file in a process of its own: vLLM's engines keep 6 to 10 GB until their process ends.

## make test-gpu            set up vLLM, then run what only a GPU can show, in at most 9 minutes;
##                          prints it and keeps it in results/gpu/parts.json. Without a GPU it
##                          says so and fails
test-gpu: install-vllm
	$(run-vllm) python -m benchmarks.gpu

## make test-paper          run the paper's whole study with small random models and vLLM;
##                          SAGE_MIRROR must name the folder with the benchmarks' files
test-paper: install-vllm
	$(if $(SAGE_MIRROR),,$(error SAGE_MIRROR is not set; set it to the folder with the benchmarks' files))
	SAGE_WHOLE_PAPER=1 $(run-vllm) pytest tests/workflow/test_paper_study.py $(PYTEST_ARGS)

## make test-slurm          set up the SLURM executor in a separate environment, then test it on a
##                          cluster of one node; run as root, after apt-get install slurm-wlm munge
test-slurm: install-slurm
	$(run-slurm) pytest -rs -m slurm tests/workflow/test_slurm.py $(PYTEST_ARGS)

## make bench               compare speed with the naive way: ratios of paired runs
## make bench ONLY=training run one of benchmarks/*.py
bench: install-test
	$(run) python -m benchmarks $(ONLY)

## make settings            write the editors' schemas and docs/method.md's table from the types
settings: install
	$(run) python -m workflow.settings_docs

## make bases               pretrain anew the bases that come with the repository (config/bases)
bases: install
	$(run) python -m workflow.keep_bases

## make numbers            fill the numbers of README.md, docs and reports from kept tables;
##                         `python -m workflow.fill_numbers --check` only compares
numbers: install
	$(run) python -m workflow.fill_numbers

## make picture            photograph the first screen of mini's kept page for README.md (Chromium)
picture: install
	$(run) python -m workflow.page_picture

## make lock                resolve the packages anew with uv and write locks/*.txt
lock:
	$(PYTHON) workflow/lock.py

## make install             only set up (options: PYTHON=python3.12, VENV=/elsewhere/venv)
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
