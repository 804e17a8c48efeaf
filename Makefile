# `make demo`, `make serve` and `make test` install what they need.
PYTHON ?= python3
VENV   ?= .venv
PORT   ?= 8888
MANIFESTS ?= config/example

BIN := $(VENV)/bin

# Tests start hundreds of processes. Without compiled modules on disk, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-313 coverage nightly check format lock house docs-modules chart corpus bench loadtest test-cluster test-cluster-long test-older test-chart test-node test-installed test-console test-loadtest test-kill test-kill-controllers test-waiting soak-kwok test-prometheus test-promtool test-collector test-karpenter test-cluster-autoscaler test-kueue test-example-driver test-neighbours test-upstream test-upstream-suite test-upstream-suite-short bench-upstream test-validate test-laws test-hostile test-memory test-filters test-tenants krew release clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt $(VENV)/.created
	@echo "Installing what dra-extender needs into $(VENV); the first time, this takes up to a minute"
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what tests and checks need into $(VENV)"
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The variables are exported, not written before the command: otherwise make starts a shell, and a SIGTERM would end the
# shell and leave the service running.
serve: export DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES=config/node-templates.yaml
serve: export DRA_EXTENDER__SCHEDULING__SCHEDULER_NAMES=dra-scheduler
serve: $(VENV)/.runtime  ## run the service on 127.0.0.1:$(PORT) over MANIFESTS (the example cluster)
	$(BIN)/dra-extender serve --port $(PORT) --manifests $(MANIFESTS)

demo: SEED ?= 1
demo: SPEED ?= 1
demo: $(VENV)/.runtime  ## play a cluster that lives, with the console on 127.0.0.1:$(PORT); SPEED=4 is faster, SEED=N brings other pods
	$(BIN)/dra-extender demo --port $(PORT) --speed $(SPEED) --seed $(SEED)

test: $(VENV)/.dev  ## run the quick suites
	$(BIN)/python -m pytest -n auto --timeout 300

# The Python of the image. Other targets run on PYTHON.
test-313: PYTHON_313 ?= python3.13
test-313:  ## run the quick suites on Python 3.13, which the image has, in a virtual environment of its own
	$(MAKE) test PYTHON=$(PYTHON_313) VENV=.venv-3.13

coverage: $(VENV)/.dev  ## run the quick suites, and print the lines and branches that they do not reach
	$(BIN)/python -m pytest -n auto --cov --cov-report=term:skip-covered

# The newest version, unless the caller names one, or brings the programs.
test-cluster: export KUBERNETES ?= $(if $(KUBEBUILDER_ASSETS),,1.37)
test-cluster: $(VENV)/.dev  ## run the suite on two real control planes side by side (of Kubernetes 1.37, or KUBERNETES=1.36), which is built from Go modules (once, minutes) or taken from KUBEBUILDER_ASSETS; ARGS of pytest
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not nightly" tests/cluster $(ARGS)

test-cluster-long:  ## run the tests of that suite that take too long for each commit: kills, and API servers that are away
	$(MAKE) test-cluster ARGS='-m nightly'

test-older:  ## run those tests of the suite that every version of Kubernetes has to pass, on Kubernetes 1.36
	env -u KUBEBUILDER_ASSETS $(MAKE) test-cluster KUBERNETES=1.36 ARGS='-m every_version'

# Helm's own commands, and dry runs of all objects. A first build of a control plane takes minutes.
test-chart: VERSIONS ?= 1.34 1.35 1.36 1.37
test-chart: $(VENV)/.dev  ## have the API server of each version of Kubernetes take what chart and kustomize make (docs/testing.md); VERSIONS=1.36 is one
	@for each in $(VERSIONS); do \
		echo "Kubernetes $$each"; export KUBERNETES=$$each; \
		env -u KUBEBUILDER_ASSETS $(BIN)/python -m tests.kit.controlplane.binaries && \
		env -u KUBEBUILDER_ASSETS $(BIN)/python -m pytest -m every_version tests/cluster/test_chart.py tests/cluster/test_deploying.py || exit 1; \
	done

# Each run has a seed of its own, which it prints.
test-validate: export KUBERNETES ?= $(if $(KUBEBUILDER_ASSETS),,1.37)
test-validate: export VALIDATED_OBJECTS ?= 2000
test-validate: $(VENV)/.dev  ## compare what `validate` says of 2,000 objects with what a real API server says in dry runs: a minute; VALIDATED_SEED=N repeats the run that printed N
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/cluster/test_validating.py

test-node: $(VENV)/.dev  ## run pods on a real node (kubelet, containerd, a DRA driver) in a sandbox: root, Linux with cgroup v1, Go and gcc; a first build takes minutes
	$(BIN)/python -m tests.kit.node.binaries
	$(BIN)/python -m tests.kit.node.sandbox tests/node/.logs $(BIN)/python -m pytest -p no:cacheprovider tests/node

# It has a cluster and images of its own, built from Go modules and by the steps of the Dockerfile.
test-installed: export KUBERNETES := 1.37
test-installed: $(VENV)/.dev  ## install the chart on real nodes with the image of deploy/Dockerfile, and upgrade, roll back, evict and drain while pods come and go (docs/testing.md): as test-node, and Python 3.13
	env -u KUBEBUILDER_ASSETS $(BIN)/python -m tests.kit.controlplane.binaries
	env -u KUBEBUILDER_ASSETS $(BIN)/python -m tests.kit.node.binaries
	env -u KUBEBUILDER_ASSETS $(BIN)/python -m tests.kit.node.building tests/installed/.images
	env -u KUBEBUILDER_ASSETS $(BIN)/python -m tests.kit.node.sandbox tests/installed/.logs $(BIN)/python -m pytest -p no:cacheprovider tests/installed

# Each target runs, whatever became of the one before; the last lines say which failed.
SUITES := coverage test-313 test-cluster-long test-validate test-older test-chart test-upstream-suite test-node test-installed test-loadtest test-hostile test-fuzz simulate-operations test-memory test-laws test-waiting soak-kwok test-karpenter test-kill test-kill-controllers test-filters test-tenants
nightly: export HOSTILE :=
nightly:  ## run what takes too long for each commit: hours; SUITES="test-older test-node" runs some of it
	@failed=; for each in $(SUITES); do \
		began=$$(date +%s); $(MAKE) $$each || failed="$$failed $$each"; \
		echo "make $$each: $$(($$(date +%s) - began)) s"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# The pictures of docs/ are written with PICTURES=docs/images.
test-console: export PICTURES ?=
test-console: $(VENV)/.dev  ## look at the console with Chromium, which has to be there: two minutes; PICTURES=docs/images takes the pictures of docs/ again
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/console

# This shows that a load test works; its figures mean nothing.
test-loadtest: WORKLOAD := short crowded
test-loadtest: ARGS := --nodes 20 --pods 40 --repetitions 1 --no-thresholds
test-loadtest: loadtest  ## run a short load test with all its parts: a minute

test-kill: $(VENV)/.dev  ## kill the extender 200 times at random while 2,000 pods come and go on a real control plane: 10 to 20 minutes
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.cluster.killing

test-kill-controllers: CONTROLLERS ?= Http PodSchedulingContext
test-kill-controllers: $(VENV)/.dev  ## kill two controllers of negotiated claims 50 times, and the extender 50 times, while 300 pods come and go on a real control plane: 10 to 20 minutes; CONTROLLERS says how each controller is asked
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.cluster.killing --pods 300 --most 100 --nodes 50 --kills 50 --controllers $(CONTROLLERS) --controller-kills 50

test-waiting: $(VENV)/.dev  ## kill, stop and replace replicas, and take the API server away, while pods wait on a real control plane (docs/reliability.md): half an hour; WAITING="--rounds 1 --away 15" is shorter
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.cluster.waiting $(WAITING)

soak-kwok: $(VENV)/.dev  ## an hour's churn in ten minutes on 1,000 nodes of KWOK (docs/reliability.md); SOAK=--short takes four minutes
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.soak $(SOAK)

test-prometheus: $(VENV)/.dev  ## restart the service beside a real Prometheus, the program that PROMETHEUS names, and read the usage from before; takes up to seven minutes
	$(BIN)/python -m pytest tests/extender/answers/usage/real_prometheus.py

test-promtool: $(VENV)/.dev  ## have Prometheus' own tool, which PROMTOOL names, check rules and metrics, run the unit tests of each alert, and evaluate the dashboard: seconds
	$(BIN)/python -m pytest tests/neighbours/test_alerts.py tests/neighbours/test_dashboard.py

test-collector: $(VENV)/.dev  ## have an OpenTelemetry collector, which COLLECTOR names, receive the spans of a bind on a real control plane: seconds
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/cluster/collector.py

test-karpenter: $(VENV)/.dev  ## run Karpenter with our scheduler on a real control plane: a minute, after a first build of Karpenter from Go modules
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/cluster/karpenter.py

test-cluster-autoscaler: export KUBERNETES ?= $(if $(KUBEBUILDER_ASSETS),,1.37)
test-cluster-autoscaler: $(VENV)/.dev  ## have Cluster Autoscaler, the program that CLUSTER_AUTOSCALER names, make nodes on a real control plane, and ask our expander: minutes
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/cluster/cluster_autoscaler.py

test-kueue: export KUBERNETES ?= $(if $(KUBEBUILDER_ASSETS),,1.37)
test-kueue: $(VENV)/.dev  ## have Kueue, the program that KUEUE names, admit Jobs with claims on a real control plane; KUEUE_CHART is the folder of its chart: a minute
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/cluster/kueue.py

test-example-driver: $(VENV)/.dev  ## run the quick starts of dra-example-driver, the program that EXAMPLE_DRIVER names, on a real node with its own chart; EXAMPLE_DRIVER_SOURCE is the folder of its repository: a minute; as test-node
	$(BIN)/python -m tests.kit.node.binaries
	$(BIN)/python -m tests.kit.node.sandbox tests/node/.logs $(BIN)/python -m pytest -p no:cacheprovider tests/node/example_driver.py

# A program that no variable names is not run. Karpenter is built.
test-neighbours: export KUBERNETES ?= $(if $(KUBEBUILDER_ASSETS),,1.37)
test-neighbours: $(VENV)/.dev  ## run other programs beside dra-extender (docs/reference/neighbours.md): Karpenter, an autoscaler that asks in sessions, and those that PROMTOOL, PROMETHEUS, COLLECTOR, CLUSTER_AUTOSCALER, KUEUE and EXAMPLE_DRIVER name; up to half an hour
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m pytest tests/neighbours tests/cluster/test_autoscaler_example.py tests/cluster/collector.py tests/cluster/karpenter.py tests/cluster/cluster_autoscaler.py tests/cluster/kueue.py tests/extender/answers/usage/real_prometheus.py
	@test -z "$$EXAMPLE_DRIVER" || $(MAKE) test-example-driver

# Each commit has cases of its own, so that each run of CI looks at new ones.
test-upstream: SEED ?= $(shell printf %d 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0))
test-upstream: $(VENV)/.dev  ## compare random cases with upstream (Go): a minute, after a first build; SEED=N repeats the run that printed N
	$(BIN)/python -m tests.conformance.fuzz allocations --cases 3000 --seed $(SEED)
	$(BIN)/python -m tests.conformance.fuzz selectors --cases 5000 --seed $(SEED)
	$(BIN)/python -m tests.conformance.fuzz consumers --cases 5000 --seed $(SEED)

# What has run is kept (tests/upstream_suite/.logs), so a run that was interrupted goes on; SUITE=--again runs all.
test-upstream-suite: export KUBERNETES ?= 1.37
test-upstream-suite: $(VENV)/.dev  ## run Kubernetes' own integration tests of DRA in-tree and with dra-extender (docs/testing.md): tens of minutes, after a first build; KUBERNETES=1.36; SUITE="--packages all --only 'TestDRA/all/PodGroup'" runs some
	$(BIN)/python -m tests.upstream_suite --page $(SUITE)

test-upstream-suite-short: export KUBERNETES ?= 1.37
test-upstream-suite-short: $(VENV)/.dev  ## run a part of them, with dra-extender alone: minutes
	$(BIN)/python -m tests.upstream_suite --short

# Turns are kept in loadtest/results/upstream, so a run that was interrupted goes on; delete the folder to measure anew.
bench-upstream: export KUBERNETES ?= 1.37
bench-upstream: $(VENV)/.dev  ## run Kubernetes' own benchmark of DRA scheduling in pairs, in-tree and dra-extender (docs/testing.md): hours; WORKLOADS="SchedulingWithResourceClaim/* */half_100nodes" chooses, UPSTREAM="--pairs 5" passes flags
	$(BIN)/python -m loadtest.upstream_bench $(if $(WORKLOADS),--workloads $(foreach each,$(WORKLOADS),'$(each)')) $(UPSTREAM)

test-laws: $(VENV)/.dev  ## test the laws of free devices, fragmentation, the expander, quota, remembered decisions, agreement, preemption, gangs, resource classes, defragmentation, proposals and two replicas with many more examples (docs/testing.md): tens of minutes
	PREEMPT_EXAMPLES=10000 $(BIN)/python -m pytest tests/extender/plugins/preemption/test_preempt_laws.py
	PREEMPTION_EXAMPLES=10000 $(BIN)/python -m pytest --show-capture=no tests/extender/plugins/preemption/test_preemption_laws.py
	EVICTION_EXAMPLES=10000 $(BIN)/python -m pytest --show-capture=no tests/extender/plugins/preemption/test_eviction_laws.py
	FRAGMENTATION_EXAMPLES=1000 FRAGMENTATION_NODES=5000 $(BIN)/python -m pytest tests/extender/framework/decisions/test_fragmentation_laws.py tests/extender/framework/decisions/test_fragmentation_memory.py
	REPLICA_HISTORIES=4000 $(BIN)/python -m pytest --show-capture=no tests/extender/plugins/preemption/test_preemption_replicas.py
	WOKEN_HISTORIES=1000 $(BIN)/python -m pytest tests/extender/plugins/requeue/test_woken_devices.py
	WOKEN_BACKLOG_EXAMPLES=1500 $(BIN)/python -m pytest tests/extender/plugins/requeue/test_woken_backlog.py
	GANG_EXAMPLES=600 $(BIN)/python -m pytest tests/extender/plugins/gangs/test_gangs_laws.py tests/extender/plugins/gangs/test_gangs_alternatives.py tests/extender/framework/test_cluster_with_kept.py tests/extender/plugins/gangs/test_gangs_options_laws.py
	GANG_EXAMPLES=200 DECIDING_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/framework/bind/test_still_holds_laws.py
	RESOURCE_CLASS_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/plugins/resource_classes/test_resource_class_laws.py
	STORE_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/node/test_node_store.py
	CCI_EXAMPLES=100 $(BIN)/python -m pytest tests/extender/node/test_cci_laws.py
	DEFRAGMENTATION_EXAMPLES=500 $(BIN)/python -m pytest tests/extender/answers/defragmentation/test_defragmentation_laws.py
	NAMES_EXAMPLES=300 $(BIN)/python -m pytest tests/extender/test_names_of_others.py
	EXPANSION_EXAMPLES=2000 $(BIN)/python -m pytest tests/extender/autoscaler/test_autoscaler_estimate.py
	FILTER_EXAMPLES=3000 $(BIN)/python -m pytest tests/extender/planning/test_kube_scheduler.py
	STATE_EXAMPLES=10000 $(BIN)/python -m pytest tests/allocator/test_device_states.py
	SECOND_OPINION_EXAMPLES=20000 $(BIN)/python -m pytest tests/extender/plugins/second_opinion/test_engine.py
	COMPUTE_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/cluster/test_compute_claims.py
	RESOURCE_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/answers/observe/test_tables_resources.py
	QUOTA_EXAMPLES=10000 $(BIN)/python -m pytest tests/extender/plugins/quota/test_quota_totals.py tests/extender/plugins/quota/test_quota_bound.py
	ACCOUNT_EXAMPLES=3000 $(BIN)/python -m pytest --show-capture=no tests/extender/plugins/quota/test_quota_account_laws.py
	DECIDING_EXAMPLES=10000 $(BIN)/python -m pytest tests/extender/framework/decisions/test_decisions_laws.py tests/extender/framework/decisions/test_decisions_pairs.py
	AGREEMENT_EXAMPLES=5000 $(BIN)/python -m pytest tests/extender/faces/simulation/test_agreement_laws.py tests/extender/faces/simulation/test_library_laws.py
	PROPOSAL_EXAMPLES=1000 $(BIN)/python -m pytest tests/extender/answers/explain/test_explain_proposals.py tests/extender/answers/explain/test_explain_suggestions.py
	REPLICA_HISTORIES=100000 REPLICA_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest -n auto tests/extender/framework/bind/test_replica_laws.py tests/extender/framework/bind/test_replica_group_laws.py

# Each commit has histories and operations of its own, as for test-upstream.
simulate-faults: SEEDS ?= 1000
simulate-faults: FIRST ?= $(shell printf %d 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0))
simulate-faults: $(VENV)/.dev  ## play SEEDS histories of a simulated cluster with faults, in virtual time (docs/testing.md); FIRST is the first seed, SIMULATE="--show N" tells one, "--mutants" plants mistakes
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(if $(JOBS),--jobs $(JOBS)) $(SIMULATE)

simulate-operations: OPERATIONS ?= 20000
simulate-operations: FIRST ?= $(shell printf %d 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0))
simulate-operations: $(VENV)/.dev  ## do OPERATIONS random operations on clusters in memory, with the audit after each (docs/testing.md): a minute; FIRST is the first seed, SHOW=N tells one cluster
	$(BIN)/python -m tests.operations --operations $(OPERATIONS) --first $(FIRST) $(if $(SHOW),--show $(SHOW))

test-hostile: $(VENV)/.dev  ## send 100,000 hostile requests and 10,000 hostile objects from a seed; HOSTILE=--short takes a minute
	$(BIN)/python -m tests.hostile $(HOSTILE)

test-fuzz: REQUESTS ?= 20000
test-fuzz: $(VENV)/.dev  ## send REQUESTS changed requests to every endpoint: those of the OpenAPI document, and recorded ones (docs/testing.md); a minute; FUZZ="--seed 40 --only 17:4711" sends one of round 17 again
	$(BIN)/python -m tests.hostile.fuzz --requests $(REQUESTS) $(FUZZ)

test-memory: $(VENV)/.dev  ## let bombs go off in a cgroup of 1 GiB with 40,000 devices; MEMORY=--short has a tenth of all
	$(BIN)/python -m tests.hostile.memory $(MEMORY)

test-filters: $(VENV)/.dev  ## compare the model of kube-scheduler's default filters with a kube-scheduler, on 1,000 random clusters from a seed that it prints: half an hour; FILTERS="--clusters 50 --seed 7" is shorter
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.cluster.filters $(FILTERS)

test-tenants: $(VENV)/.dev  ## one hostile tenant beside nine ordinary ones on a real control plane (docs/reliability.md): 13 minutes; TENANTS="--calm 30 --hostile 60" is shorter
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m tests.hostile.tenants $(TENANTS)

bench: $(VENV)/.dev  ## run the benchmarks (docs/performance.md)
	$(BIN)/python -m loadtest.cel_bench
	$(BIN)/python -m loadtest.allocate_bench
	$(BIN)/python -m loadtest.decision_bench
	$(BIN)/python -m loadtest.wire_bench
	$(BIN)/python -m loadtest.latency_bench
	$(BIN)/python -m loadtest.pod_bench
	$(BIN)/python -m loadtest.hard_bench
	$(BIN)/python -m loadtest.gang_bench
	$(BIN)/python -m loadtest.explain_bench
	$(BIN)/python -m loadtest.what_if_bench
	$(BIN)/python -m loadtest.console_bench
	$(BIN)/python -m loadtest.simulate_bench
	$(BIN)/python -m loadtest.sync_bench
	$(BIN)/python -m loadtest.memory_bench
	$(BIN)/python -m loadtest.scaling_bench
	$(BIN)/python -m loadtest.autoscaler_bench
	$(BIN)/python -m loadtest.packing_bench --own mig,any-gpu,nvlink,nic,sriov --load 100 --bound

loadtest: $(VENV)/.dev  ## measure pods per second on a real control plane: WORKLOAD (names or files), ARGS (--help); all workloads take more than an hour
	$(BIN)/python -m tests.kit.controlplane.binaries
	$(BIN)/python -m loadtest.endtoend $(if $(WORKLOAD),--workloads $(WORKLOAD)) $(ARGS)

check: $(VENV)/.dev  ## check format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

house: $(VENV)/.dev  ## count lines, modules and layers, and the modules and moves of traced calls (docs/testing.md); CALL="bind" prints the way of one call
	$(BIN)/python -m tests.house $(if $(CALL),--call "$(CALL)")

docs-modules: $(VENV)/.dev  ## write docs/reference/modules.md from the docstrings of the modules
	$(BIN)/python -m tests.house.modules

chart: $(VENV)/.dev  ## copy into the chart what it shares with kustomize, and write docs/reference/chart-values.md from its schema
	$(BIN)/python -m tests.house.chart

corpus: TO ?= .corpus
corpus: $(VENV)/.dev  ## record in the folder TO what thousands of calls over random worlds are answered and write; AGAINST=<git revision, or folder of a recording> prints the first differences (docs/testing.md); ARGS
	$(BIN)/python -m tests.corpus --to $(TO) $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

# The image's packages, by hash, in the versions of constraints.txt; a test compares the versions.
LOCK := $(BIN)/uv pip compile --quiet --constraint constraints.txt --generate-hashes --python-platform linux --python-version 3.11 \
	--no-header --no-annotate --no-emit-index-url
lock: $(VENV)/.created  ## write deploy/requirements*.txt again, after a change of constraints.txt or of packages in pyproject.toml
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	rm -f deploy/requirements.txt deploy/requirements-build.txt
	$(LOCK) --extra grpc --extra opentelemetry --output-file deploy/requirements.txt pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(LOCK) --output-file deploy/requirements-build.txt -

# Equal files give equal archives: the hash in the manifest is that of every build.
DIST ?= dist
KREW_URI ?= https://example.com/kubectl-dra.tar.gz
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' extender/tools/version.py)
krew:  ## write the archive and the manifest of the plugin for krew into dist/; KREW_URI is where you publish the archive
	@mkdir -p $(DIST)
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C deploy/krew kubectl-dra -C ../.. LICENSE | gzip -9n > $(DIST)/kubectl-dra.tar.gz
	sed -e '/^#/d' -e 's|VERSION|v$(VERSION)|' -e 's|URI|$(KREW_URI)|' \
		-e "s|SHA256|$$(sha256sum < $(DIST)/kubectl-dra.tar.gz | cut -d' ' -f1)|" deploy/krew/dra.yaml > $(DIST)/dra.yaml

# A release is of a commit, and is built twice. TAG=v0.1.0 names it; without TAG, it is a preview.
TAG ?=
release: $(VENV)/.dev  ## build wheel, sdist, chart, manifests, kubectl plugin, SBOM and checksums into dist/, compare two builds, and try each part: minutes; TAG=v0.1.0
	$(BIN)/python -m tests.release --to $(DIST) --uri $(KREW_URI) $(if $(TAG),--tag $(TAG))

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .venv-3.13 .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
