# Everything that this project does, as commands. `make help` lists them.
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
BENCH_SITES ?= kubevirt pod openNebula
ONED_MACHINES ?= 100
RUN := .run
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2
FUZZ_SECONDS ?= 600
IMAGE ?= simyard:dev
.DEFAULT_GOAL := help
.PHONY: help venv tools quickstart quickstart-down dev-up dev-down test test-kubevirt test-occi-clients test-guest test-attack fuzz-occi fuzz-guest lint format generate verify lock docs docs-serve image e2e e2e-up e2e-down bench-start bench-occi bench-sites bench-oned bench-plot bench-check clean

help: ## List the commands.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: venv ## Set up everything on loopback, start a pool of simulation workers, solve a beam; leave it running.
	@$(DEV) quickstart --dir $(RUN)/quickstart

quickstart-down: venv ## End what quickstart started.
	@$(DEV) down --dir $(RUN)/quickstart

dev-up: venv ## The parts without the example: control plane, broker, operator, aggregated API, two OCCI frontends.
	@$(DEV) dev-up --dir $(RUN)/dev

dev-down: venv ## End what dev-up started.
	@$(DEV) down --dir $(RUN)/dev

test: venv tools ## Set up and run all tests.
	@$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

# Apart from `make test`: the first build of virt-api and virt-controller takes minutes; .ci/run includes it.
test-kubevirt: venv tools ## Have the KubeVirt site use KubeVirt's own virt-api and virt-controller (first build: minutes).
	@$(DEV) tools virt-api virt-controller virt-manifests >/dev/null
	@$(PY) -m pytest -q -rs -n 0 e2e/kubevirt $(PYTEST_ARGS)

test-occi-clients: venv tools ## Have jOCCI make, call and delete a compute (needs Java 17 and Maven, else skipped).
	@$(PY) -m pytest -q -rs e2e/occi-clients $(PYTEST_ARGS)

test-guest: venv ## Build a guest image (or take GUEST_IMAGE), boot it as KubeVirt and OpenNebula do, have it register and act.
	@$(PY) -m pytest -q -rs -s e2e/guest $(PYTEST_ARGS)

test-attack: venv tools ## Kill, freeze, flood and cut everything at random while work goes on (ATTACK_SEED, ATTACK_ROUNDS).
	@$(PY) -m pytest -q -s -n 0 e2e/attack $(PYTEST_ARGS)

fuzz-occi: venv ## Feed the OCCI parsers inputs that nobody would write for FUZZ_SECONDS; keep what reaches new code.
	@PYTHONPATH=hack nice -n 19 $(PY) operator/tests/occi/occi_fuzzing.py --seconds $(FUZZ_SECONDS)

fuzz-guest: venv ## Feed what reads workers' messages inputs that no adapter would send for FUZZ_SECONDS.
	@PYTHONPATH=hack nice -n 19 $(PY) operator/tests/guest/guest_fuzzing.py --seconds $(FUZZ_SECONDS)

lint: venv ## Check style, types and the direction of imports.
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy operator/simyard adapters/sites/simyard_sites adapters/service/simyard_adapter hack/simyard_dev bench/simyard_bench hack/*.py
	@MYPYPATH=e2e/cluster:e2e/cluster/pods:e2e/occi-clients:hack .venv/bin/mypy e2e/cluster
	@.venv/bin/lint-imports --no-cache

format: venv ## Write the style that lint checks.
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

generate: venv ## Write what is generated: CRDs, roles, parts of the documentation, the examples' manifests.
	@PYTHONPATH=hack:bench $(PY) hack/generate.py
	@$(PY) hack/manifest.py examples/calculix-beam

verify: venv ## Fail if something generated is not up to date.
	@PYTHONPATH=hack:bench $(PY) hack/generate.py --check
	@$(PY) hack/manifest.py examples/calculix-beam --check

docs: venv ## Build the documentation as a site in .run/site; its links are checked, and that it loads nothing from outside.
	@hack/docs.sh build --quiet
	@! grep -rnEo '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//[^>]*' $(RUN)/site --include=*.html
	@echo "$(RUN)/site/index.html"

docs-serve: venv ## Show it on loopback, and again whenever a file changes.
	@hack/docs.sh serve

image: ## Build the container image (needs a Docker engine; BASE names another base image).
	@hack/image.sh $(IMAGE)

e2e: e2e-up ## Run the end-to-end tests on a kind cluster (needs a Docker engine, kind, kubectl, helm; or E2E_TESTBED).
	@E2E_AS_IT_IS=1 $(PY) -m pytest -q -rs -n 0 e2e/cluster $(PYTEST_ARGS)

e2e-up: venv ## Make the kind cluster, put this tree's images on it, install the chart.
	@$(PY) e2e/cluster/deploy.py up

e2e-down: venv ## Remove the kind cluster.
	@$(PY) e2e/cluster/deploy.py down

bench-start: venv ## Start pools of BENCH_N workers with BENCH_PROFILE, measure, compare; see docs/performance.md.
	@$(BENCH) start --n $(BENCH_N) --profile $(BENCH_PROFILE) --time-scale $(BENCH_TIME_SCALE) \
		--yardsticks $(BENCH_YARDSTICKS) $(if $(BENCH_PROFILER),--profiler $(BENCH_PROFILER)) $(BENCH_ARGS)

bench-occi: venv ## Ask OCCI frontends with BENCH_OCCI_N workers and after BENCH_OCCI_FINISHED ones, measure, compare.
	@$(BENCH) occi --n $(BENCH_OCCI_N) --finished $(BENCH_OCCI_FINISHED) $(BENCH_ARGS)

bench-sites: venv ## Start and watch machines at BENCH_SITES (clouds simulated), beside bare clients, measure, compare.
	@$(BENCH) sites --sites $(BENCH_SITES) $(BENCH_ARGS)

bench-oned: venv ## Measure how fast the oned of SIMYARD_ONE_ENDPOINT makes machines (ONED_MACHINES in each case).
	@PYTHONPATH=hack:bench $(PY) -m simyard_bench.sites.daemon $(ONED_MACHINES)

bench-plot: venv ## Draw the results of the benchmarks, and write the tables of docs/performance.md.
	@$(BENCH) plot

bench-check: venv ## Say which of the promised figures the results meet.
	@$(BENCH) check

lock: ## Write requirements.lock anew from the pyproject files.
	@hack/venv.sh --lock

clean: quickstart-down dev-down ## End what runs and remove what was made in this folder.
	rm -rf .venv $(RUN) .mypy_cache .ruff_cache .pytest_cache .hypothesis

venv:
	@hack/venv.sh

tools: venv
	@$(DEV) tools >/dev/null
