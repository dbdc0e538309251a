# All commands of this project. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
DEV := PYTHONPATH=hack $(PY) -m simyard_dev
BENCH := PYTHONPATH=hack:bench $(PY) -m simyard_bench
BENCH_N ?= 1 5 10 20 40 100 512 10000
BENCH_PROFILE ?= instant
BENCH_TIME_SCALE ?= 1
BENCH_YARDSTICKS ?= limit peer
BENCH_PROFILER ?=
BENCH_ARGS ?=
BENCH_OCCI_N ?= 2 41 1000 10000
BENCH_OCCI_FINISHED ?= 25000
BENCH_SITES ?= kubevirt kubevirt-controllers pod openNebula
ONED_MACHINES ?= 100
BENCH_STUDIES ?= study dask ray job
RUN := .run
# Without bytecode files each of the hundreds of Python processes of a test run compiles its modules for seconds.
export PYTHONDONTWRITEBYTECODE :=
PYTEST_ARGS ?=
# Many tests wait, so there are more workers than cores; the fast ones only compute.
PYTEST_WORKERS ?= $(shell expr 2 '*' $$(nproc))
FAST_WORKERS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
IMAGE ?= simyard:dev
VERSION ?=
RELEASE_IMAGE ?= auto
.DEFAULT_GOAL := help
.PHONY: help venv tools quickstart quickstart-down dev-up dev-down test test-fast test-soak test-kubevirt test-installation test-occi-clients test-guest test-attack fuzz-occi fuzz-guest lint format generate verify lock docs docs-serve image release e2e e2e-up e2e-down bench-start bench-occi bench-sites bench-oned bench-files bench-studies bench-plot bench-check clean

help: ## List the commands.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: venv ## Start the whole system on loopback and a pool of workers, solve a beam; the servers keep running.
	@$(DEV) quickstart --dir $(RUN)/quickstart

quickstart-down: venv ## Stop the servers of quickstart.
	@$(DEV) down --dir $(RUN)/quickstart

dev-up: venv ## Start control plane, broker, operator, aggregated API and two OCCI frontends, without the example.
	@$(DEV) dev-up --dir $(RUN)/dev

dev-down: venv ## Stop the servers of dev-up.
	@$(DEV) down --dir $(RUN)/dev

test: venv tools ## Set up and run all tests but the soak tests.
	@$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadgroup -m "not soak" $(PYTEST_ARGS)

test-soak: venv tools ## Run the soak tests: small runs of all benchmarks, and faults that last for minutes.
	@$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadgroup -m soak $(PYTEST_ARGS)

test-fast: venv ## Run the tests that start no processes: pure code, and what runs inside of pytest.
	@$(PY) -m pytest -q -n $(FAST_WORKERS) --fast $(PYTEST_ARGS)

# Not part of `make test`, because the first build of virt-api and virt-controller takes minutes; .ci/run includes it.
test-kubevirt: venv tools ## Test the KubeVirt site with KubeVirt's own virt-api and virt-controller (first build: minutes).
	@$(DEV) tools virt-api virt-controller virt-manifests >/dev/null
	@$(PY) -m pytest -q -rs -n 0 e2e/kubevirt $(PYTEST_ARGS)

# Not part of `make test` for the same reason.
test-installation: venv tools ## Run the chart with cert-manager's controllers and an existing broker (first build: minutes).
	@$(DEV) tools cert-manager >/dev/null
	@$(PY) -m pytest -q -rs -n 0 e2e/installation $(PYTEST_ARGS)

test-occi-clients: venv tools ## Let jOCCI create, call and delete a compute (skipped without Java 17 and Maven).
	@$(PY) -m pytest -q -rs e2e/occi-clients $(PYTEST_ARGS)

test-guest: venv ## Build a guest image (or use GUEST_IMAGE), boot it as KubeVirt and OpenNebula do, call an action in it.
	@$(PY) -m pytest -q -rs -s e2e/guest $(PYTEST_ARGS)

test-attack: venv tools ## Kill, freeze and flood processes and cut connections at random during work (ATTACK_SEED, ATTACK_ROUNDS).
	@$(PY) -m pytest -q -s -n 0 e2e/attack $(PYTEST_ARGS)

fuzz-occi: venv ## Fuzz the OCCI parsers for FUZZ_SECONDS; keep the inputs that reach new code.
	@PYTHONPATH=hack nice -n 19 $(PY) operator/tests/occi/occi_fuzzing.py --seconds $(FUZZ_SECONDS)

fuzz-guest: venv ## Fuzz the parsers of workers' messages for FUZZ_SECONDS; keep the inputs that reach new code.
	@PYTHONPATH=hack nice -n 19 $(PY) operator/tests/guest/guest_fuzzing.py --seconds $(FUZZ_SECONDS)

lint: venv ## Check style, spelling, types, imports, the lengths of files, and that pytest finds all tests.
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/codespell
	@.venv/bin/mypy operator/simyard adapters/sites/simyard_sites adapters/service/simyard_adapter adapters/client/simyard_client adapters/simulators/simyard_simulators hack/simyard_dev bench/simyard_bench hack/*.py
	@MYPYPATH=e2e/cluster:e2e/cluster/pods:e2e/occi-clients:hack .venv/bin/mypy e2e/cluster
	@.venv/bin/lint-imports --no-cache
	@$(PY) hack/file_lengths.py
	@collected=$$($(PY) -m pytest -qq --collect-only 2>&1) || { tail -n 20 <<<"$$collected"; exit 1; }

format: venv ## Format the code as lint expects it, and fix what ruff can fix.
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

generate: venv ## Write the generated files: CRDs, roles, parts of the documentation, manifests of the examples.
	@PYTHONPATH=hack:bench $(PY) hack/generate.py
	@$(PY) hack/manifest.py examples/calculix-beam

verify: venv ## Fail if a generated file is out of date.
	@PYTHONPATH=hack:bench $(PY) hack/generate.py --check
	@$(PY) hack/manifest.py examples/calculix-beam --check

docs: venv ## Build the documentation in .run/site; check its links, and that its pages load nothing from other sites.
	@hack/docs.sh build --quiet
	@! grep -rnEo '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//[^>]*' $(RUN)/site --include=*.html
	@echo "$(RUN)/site/index.html"

docs-serve: venv ## Serve the documentation on loopback; reload it when a file changes.
	@hack/docs.sh serve

image: ## Build the container image (needs a Docker engine; BASE names another base image).
	@hack/image.sh $(IMAGE)

release: venv ## Build the files of release VERSION (default: that of pyproject.toml) in .run/release.
	@PYTHONPATH=hack $(PY) hack/release.py --version "$(VERSION)" --image $(RELEASE_IMAGE)

e2e: e2e-up ## Run the end-to-end tests on a kind cluster (needs a Docker engine, kind, kubectl, helm; or E2E_TESTBED).
	@E2E_AS_IT_IS=1 $(PY) -m pytest -q -rs -n 0 e2e/cluster $(PYTEST_ARGS)

e2e-up: venv ## Make the kind cluster, load the images of this tree, install the chart.
	@$(PY) e2e/cluster/deploy.py up

e2e-down: venv ## Delete the kind cluster.
	@$(PY) e2e/cluster/deploy.py down

bench-start: venv ## Measure starts of pools of BENCH_N workers with BENCH_PROFILE beside yardsticks; see docs/performance.md.
	@$(BENCH) start --n $(BENCH_N) --profile $(BENCH_PROFILE) --time-scale $(BENCH_TIME_SCALE) \
		--yardsticks $(BENCH_YARDSTICKS) $(if $(BENCH_PROFILER),--profiler $(BENCH_PROFILER)) $(BENCH_ARGS)

bench-occi: venv ## Measure OCCI frontends with BENCH_OCCI_N workers, and after BENCH_OCCI_FINISHED that ended.
	@$(BENCH) occi --n $(BENCH_OCCI_N) --finished $(BENCH_OCCI_FINISHED) $(BENCH_ARGS)

bench-sites: venv ## Measure starts and polls of machines at BENCH_SITES (simulated clouds) beside bare clients.
	@$(BENCH) sites --sites $(BENCH_SITES) $(BENCH_ARGS)

bench-oned: venv ## Measure how fast the oned of SIMYARD_ONE_ENDPOINT creates machines (ONED_MACHINES in each case).
	@PYTHONPATH=hack:bench $(PY) -m simyard_bench.sites.daemon $(ONED_MACHINES)

bench-files: venv tools ## Measure transfers of files through the platform beside a bare S3 client (up to 10 GB: 30 GB of disk).
	@$(BENCH) files $(BENCH_ARGS)

bench-studies: venv tools ## Measure studies of tasks that do nothing beside Dask, Ray and a Job (BENCH_STUDIES names the parts).
	@$(BENCH) studies --systems $(BENCH_STUDIES) $(BENCH_ARGS)

bench-plot: venv ## Draw the results of the benchmarks; write the tables of README.md and docs/performance.md.
	@$(BENCH) plot

bench-check: venv ## Compare the results with the promised figures; fail if one is not met.
	@$(BENCH) check

lock: ## Write the lock files from the pyproject files.
	@hack/venv.sh --lock

clean: quickstart-down dev-down ## Stop all servers and delete everything that make has created in this folder.
	rm -rf .venv $(RUN) .mypy_cache .ruff_cache .pytest_cache .hypothesis

venv:
	@hack/venv.sh

tools: venv
	@$(DEV) tools >/dev/null
