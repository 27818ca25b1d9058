SHELL         := bash -euo pipefail
.DEFAULT_GOAL := help

# --- What is built -----------------------------------------------------------
# The file VERSION holds the version and its release date. No other file may repeat them.
VERSION  ?= $(word 1,$(shell cat VERSION))
RELEASED ?= $(word 2,$(shell cat VERSION))
IMG      ?= quay.io/sonde/sonde:dev
# The image that the bundle installs, with a tag or a digest.
RELEASE_IMG ?= quay.io/sonde/sonde:v$(VERSION)
# The image that runs Helm for Collectors, for tests and for the bundle.
RELEASER_IMG         ?= quay.io/sonde/sonde-releaser:dev
RELEASER_RELEASE_IMG ?= quay.io/sonde/sonde-releaser:v$(VERSION)
BUNDLE_IMG  ?= quay.io/sonde/sonde-bundle:v$(VERSION)
CATALOG_IMG ?= quay.io/sonde/sonde-catalog:v$(VERSION)
WORKLOAD := sonde.local/workload:1
ARCH     ?= $(shell go env GOARCH)
BIN      := bin/linux_$(ARCH)
# Holds the local cluster's binaries and downloads, so that they survive a clean clone.
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sonde

# Every tool is a pinned Go module: no curl, no @latest.
TOOL   := go tool -modfile=hack/tools/go.mod
LINT   := go tool -modfile=hack/lint/go.mod golangci-lint
# operator-sdk and opm take minutes to build the first time, so only the targets that need them build them.
OLM_BIN := $(CACHE)/olm
# Files that `make generate` and `make bundle` write. Do not edit them by hand.
GENERATED := api client docs/reasons.md config/crd/bases config/rbac/role.yaml config/olmv1 bundle bundle.Dockerfile '*_bpfel.go' '*_bpfel.o' 'internal/cli/htmlreport/assets/uPlot*'

export CGO_ENABLED ?= 0
# One set of flags for builds and tests, so that they share the build cache.
export GOFLAGS     := -buildvcs=false -trimpath
LDFLAGS := -s -w -X github.com/sonde-operator/sonde/internal/version.Version=$(VERSION)

# --- The cluster that is used ------------------------------------------------
# To use another cluster than the local one, name it: KUBE_CONTEXT=name IMG=registry/image:tag.
CLUSTER      := $(CACHE)/cluster/cluster
KUBE_CONTEXT ?=
NODES        ?= 2
# OPENSHIFT=1 adds OpenShift's SCC admission. INSTANCE=N chooses one of several clusters on this machine.
OPENSHIFT    ?=
# NODE_DISK=2Gi gives each node its own disk for Pods' volumes.
NODE_DISK    ?=
INSTANCE     ?= $(or $(SONDE_CLUSTER_INSTANCE),0)
export SONDE_CLUSTER_INSTANCE := $(INSTANCE)

##@ Start here
.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS=":.*##"} /^##@/ {print "\n" substr($$0,5)} /^[a-z0-9-]+:.*##/ {printf "  %-16s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## Install the Debian packages that building and testing need (as root).
	@hack/deps/install.sh

.PHONY: demo
demo: deps ## Start a cluster, capture a workload and print the summary; leaves demo.pcapng.
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' hack/demo.sh

.PHONY: demo-trace
demo-trace: deps ## Trace a slow service from the symptom to the cause (docs/guide/slow-call.md); KEEP=1 keeps it.
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' hack/demo-trace.sh

.PHONY: demo-intercept
demo-intercept: deps ## Answer a Service's requests in a process outside of the cluster (docs/intercept.md).
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' hack/demo-intercept.sh

.PHONY: demo-collector
demo-collector: deps ## Install, upgrade and remove a tenant's OpenTelemetry Collector by Helm (docs/collector.md).
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' RELEASER_IMG='$(RELEASER_IMG)' hack/demo-collector.sh

.PHONY: demo-fluentpvc
demo-fluentpvc: deps ## Give Pods disposable volumes and process each after its Pod is gone (docs/fluentpvc.md).
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' hack/demo-fluentpvc.sh

.PHONY: test
test: deps ## Run what CI runs: generated code, lint, unit tests, API server, and one end-to-end pass per kind.
	@hack/timed.sh verify lint test-race test-api test-e2e

##@ Build
.PHONY: build
build: pcapfilter ## Build manager, agent, releaser and plugin into bin/.
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/manager .
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/agent ./cmd/agent
	go build -ldflags '$(LDFLAGS)' -o bin/kubectl-sonde ./cmd/kubectl-sonde
	cd cmd/releaser && go build -ldflags '$(LDFLAGS)' -o '$(CURDIR)/$(BIN)/releaser' .

.PHONY: pcapfilter
pcapfilter: ## Build the filter compiler: libpcap as a WebAssembly module.
	@internal/operator/pcapfilter/wasm/build.sh

.PHONY: image
image: build cluster-program ## Build the images as build/sonde.tar and build/releaser.tar, without a docker daemon.
	@mkdir -p build
	@$(CLUSTER) image -o build/sonde.tar --name '$(IMG)' --user 65532:65532 --entrypoint /manager manager=$(BIN)/manager agent=$(BIN)/agent
	@$(CLUSTER) image -o build/releaser.tar --name '$(RELEASER_IMG)' --user 65532:65532 --entrypoint /releaser releaser=$(BIN)/releaser

COLLECTOR := sonde.local/otelcol:1
.PHONY: image-collector
image-collector: cluster-program ## Build the image of the OpenTelemetry Collector that tests and the demo install.
	@mkdir -p build
	cd hack/otelcol && go build -ldflags '-s -w' -o '$(CURDIR)/$(BIN)/otelcol' .
	@$(CLUSTER) image -o build/otelcol.tar --name '$(COLLECTOR)' --user 65532:65532 --entrypoint /otelcol otelcol=$(BIN)/otelcol

REGISTRY := sonde.local/registry:1
.PHONY: image-registry
image-registry: cluster-program ## Build the image of the registry that tests of Collectors pull charts from.
	@mkdir -p build
	cd hack/registry && go build -ldflags '-s -w' -o '$(CURDIR)/$(BIN)/registry' .
	@$(CLUSTER) image -o build/registry.tar --name '$(REGISTRY)' --user 65532:65532 --entrypoint /registry registry=$(BIN)/registry

.PHONY: image-workload
image-workload: cluster-program ## Build the image of the workload that tests and demos capture.
	@mkdir -p build
	go build -ldflags '-s -w' -o $(BIN)/workload ./test/workload
	@$(CLUSTER) image -o build/workload.tar --name '$(WORKLOAD)' --user 65532:65532 --entrypoint /workload workload=$(BIN)/workload agent=$(BIN)/workload

# hack/image builds the published images; $(CLUSTER) image builds those of the local cluster.
IMAGE_TOOL := bin/image
ARCHS      := amd64 arm64
comma      := ,
space      := $(subst ,, )
.PHONY: image-program
image-program:
	@cd hack/image && go build -o $(CURDIR)/$(IMAGE_TOOL) .

# multiarch FILE NAME PROGRAMS: the command that writes a published image, with one layer.
multiarch = $(IMAGE_TOOL) build -o build/$(1)-multiarch.tar --name 'quay.io/sonde/$(2):v$(VERSION)' --arch $(subst $(space),$(comma),$(ARCHS)) \
	--labels hack/image/$(1).yaml --label 'version=$(VERSION)' --label 'org.opencontainers.image.version=$(VERSION)' \
	--label 'org.opencontainers.image.created=$(RELEASED)T00:00:00Z' --label "org.opencontainers.image.revision=$$(git rev-parse HEAD)" \
	--created '$(RELEASED)' --user 65532:65532 $(3) licenses/LICENSE=LICENSE

.PHONY: image-multiarch
image-multiarch: pcapfilter image-program ## Build the images for amd64 and arm64 as build/sonde-multiarch.tar and build/releaser-multiarch.tar (OCI layouts).
	for arch in $(ARCHS); do \
		GOARCH=$$arch go build -ldflags '$(LDFLAGS)' -o bin/linux_$$arch/manager .; \
		GOARCH=$$arch go build -ldflags '$(LDFLAGS)' -o bin/linux_$$arch/agent ./cmd/agent; \
		(cd cmd/releaser && GOARCH=$$arch go build -ldflags '$(LDFLAGS)' -o '$(CURDIR)'/bin/linux_$$arch/releaser .); \
	done
	@mkdir -p build
	@$(call multiarch,sonde,sonde,--entrypoint /manager manager=bin/linux_{arch}/manager agent=bin/linux_{arch}/agent)
	@$(call multiarch,releaser,sonde-releaser,--entrypoint /releaser releaser=bin/linux_{arch}/releaser)

.PHONY: image-push
image-push: image-program ## Push both images to IMG=registry/name:tag and registry/name-releaser:tag, and print the names with their digests for make bundle-build.
	@[ '$(origin IMG)' != file ] || { echo 'where to? make image-push IMG=registry/name:tag' >&2; exit 2; }
	@[[ '$(IMG)' =~ ^(.+):([^:/@]+)$$ ]] || { echo 'IMG has no tag: make image-push IMG=registry/name:tag' >&2; exit 2; }; \
	$(IMAGE_TOOL) push build/sonde-multiarch.tar '$(IMG)'; \
	$(IMAGE_TOOL) push build/releaser-multiarch.tar "$${BASH_REMATCH[1]}-releaser:$${BASH_REMATCH[2]}"

##@ Bundle for OperatorHub
.PHONY: bundle
bundle: ## Generate bundle/, bundle.Dockerfile and OLM v1's installer from config/.
	@cd hack/bundle && go build -o $(CURDIR)/bin/bundle .
	@$(TOOL) kustomize build config/manifests | bin/bundle -version '$(VERSION)' -date '$(RELEASED)' -image '$(RELEASE_IMG)' -releaser-image '$(RELEASER_RELEASE_IMG)' -icon config/manifests/icon.svg
	@mkdir -p config/olmv1
	@go run ./test/installer/write bundle > config/olmv1/installer.yaml

.PHONY: bundle-build
bundle-build: image-program ## Build the bundle's image for RELEASE_IMG and RELEASER_RELEASE_IMG as build/bundle.tar, without a docker daemon.
	@cd hack/bundle && go build -o $(CURDIR)/bin/bundle .
	@mkdir -p build/release
	@$(TOOL) kustomize build config/manifests | bin/bundle -version '$(VERSION)' -date '$(RELEASED)' -image '$(RELEASE_IMG)' -releaser-image '$(RELEASER_RELEASE_IMG)' -icon config/manifests/icon.svg -out build/release
	@$(IMAGE_TOOL) build -o build/bundle.tar --name '$(BUNDLE_IMG)' --created '$(RELEASED)' --labels build/release/bundle/metadata/annotations.yaml \
		manifests=build/release/bundle/manifests metadata=build/release/bundle/metadata tests=build/release/bundle/tests

.PHONY: catalog-build
catalog-build: image-program ## Build the catalog's image as build/catalog.tar: only files, for OLM v1, or v0 with extractContent.
	@mkdir -p build
	@$(IMAGE_TOOL) build -o build/catalog.tar --name '$(CATALOG_IMG)' --created '$(RELEASED)' \
		--label operators.operatorframework.io.index.configs.v1=/configs configs/sonde=catalog/sonde

.PHONY: olm-tools
olm-tools:
	@hack/olm/build.sh $(OLM_BIN) operator-sdk opm crdify

.PHONY: olm-programs
olm-programs:
	@hack/olm/build.sh $(OLM_BIN)

.PHONY: bundle-validate
bundle-validate: olm-tools ## Validate bundle and catalog as OperatorHub does, and the upgrade of the CRDs since the last release; a warning is a failure.
	@SDK=$(OLM_BIN)/operator-sdk hack/bundle-validate.sh
	@CRDIFY=$(OLM_BIN)/crdify hack/crd-upgrade.sh
	@OPM=$(OLM_BIN)/opm VERSION='$(VERSION)' hack/catalog.sh --check

.PHONY: scorecard
scorecard: cluster-up ## Run operator-sdk's scorecard on the bundle, in the local cluster.
	@hack/olm/build.sh $(OLM_BIN) operator-sdk scorecard-test
	@SDK=$(OLM_BIN)/operator-sdk SCORECARD_TEST=$(OLM_BIN)/scorecard-test hack/scorecard.sh

.PHONY: preflight
preflight: image-multiarch ## Run Red Hat's checks on the published form of image and bundle, offline.
	@$(MAKE) --no-print-directory bundle-build RELEASE_IMG="quay.io/sonde/sonde@$$($(IMAGE_TOOL) digest build/sonde-multiarch.tar)" \
		RELEASER_RELEASE_IMG="quay.io/sonde/sonde-releaser@$$($(IMAGE_TOOL) digest build/releaser-multiarch.tar)"
	@cd hack/preflight && go test ./... # here and not in test-hack: it brings hundreds of packages
	@cd hack/preflight && go build -ldflags '-s -w' -o $(CURDIR)/bin/preflight .
	@bin/preflight -pusher $(IMAGE_TOOL) -tag 'v$(VERSION)'

.PHONY: catalog
catalog: olm-tools ## Render and validate catalog/ from its template and the bundles, without a registry.
	@OPM=$(OLM_BIN)/opm VERSION='$(VERSION)' hack/catalog.sh

##@ Release
.PHONY: release
release: ## Prepare the next version in this tree: VERSION=1.2.3 (docs/releasing.md).
	@[ '$(origin VERSION)' = 'command line' ] || { echo 'which version? make release VERSION=1.2.3' >&2; exit 2; }
	@OPM='$(OPM)' MAKE='$(MAKE)' hack/release.sh '$(VERSION)'

PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
.PHONY: plugin-archives
plugin-archives: ## Build build/plugin/kubectl-sonde_OS_ARCH.tar.gz, the checksums and krew's manifest.
	@VERSION='$(VERSION)' RELEASED='$(RELEASED)' LDFLAGS='$(LDFLAGS)' hack/plugin-archives.sh $(PLUGIN_PLATFORMS)

.PHONY: plugin-check
plugin-check: ## Check that the plugin compiles for Windows and macOS, without building it.
	go run ./hack/plugincheck $(filter-out linux/%,$(PLUGIN_PLATFORMS))

##@ Local cluster
.PHONY: cluster-program
cluster-program:
	@mkdir -p $(dir $(CLUSTER))
	@cd hack/cluster && go build -o $(CLUSTER) .

.PHONY: cluster-up
cluster-up: cluster-program ## Start the local cluster (NODES=1..3, OPENSHIFT=1, NODE_DISK=2Gi, INSTANCE=0..9), and build it the first time.
	@$(CLUSTER) up --nodes $(NODES) $(if $(OPENSHIFT),--openshift) $(if $(NODE_DISK),--node-disk $(NODE_DISK))

.PHONY: cluster-down
cluster-down: cluster-program ## Stop the local cluster and remove it.
	@$(CLUSTER) down

.PHONY: install
install: ## Install the operator into the local cluster, or into KUBE_CONTEXT.
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' IMG='$(IMG)' hack/install.sh

.PHONY: uninstall
uninstall: ## Remove the operator and all of its objects.
	@KUBE_CONTEXT='$(KUBE_CONTEXT)' hack/install.sh --remove

##@ Development
.PHONY: generate
generate: ## Regenerate deepcopy functions, CRDs, RBAC, the typed client, the table of reasons, BPF programs and the chart library.
	@go generate ./agents/...
	@$(TOOL) controller-gen object paths=./api/...
	@$(TOOL) controller-gen crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	@$(TOOL) controller-gen rbac:roleName=sonde-manager paths=. paths=./controllers/... paths=./webhooks/... paths=./internal/... output:rbac:artifacts:config=config/rbac
	@hack/client.sh
	@go run ./hack/reasons | hack/section.sh docs/reasons.md reasons
	@hack/reportpage/build.sh

.PHONY: verify
verify: generate bundle ## Fail if generated files differ from the last commit, or are missing there.
	@out=$$(git status --porcelain --untracked-files=all -- $(GENERATED)); \
	if [ -n "$$out" ]; then printf 'stale generated files (run make generate bundle and commit):\n%s\n' "$$out"; git --no-pager diff -- $(GENERATED); exit 1; fi
	@go test -run '^TestCatalogHasTheBundle$$' ./test/installer
	@hack/verify-modules.sh

.PHONY: lint
lint: export GOMEMLIMIT := 5GiB
lint: pcapfilter plugin-check ## Lint, check the formatting, and that the plugin compiles for Windows and macOS.
	$(LINT) run ./...
	for dir in cmd/releaser hack/cluster hack/bundle hack/image hack/otelcol hack/registry test/bench/wireguard; do \
		(cd $$dir && go tool -modfile='$(CURDIR)/hack/lint/go.mod' golangci-lint run --config '$(CURDIR)/.golangci.yml' ./...); \
	done

.PHONY: fmt
fmt: ## Format the code.
	$(LINT) fmt ./...

# Tests that use the kernel need root. Where root is promised, a skip is a failure. Two packages at a time, of at most 1 GiB
# each under the race detector, fit in 8 GiB on any number of processors.
UNIT := ./api/... ./agents/... ./client/... ./cmd/... ./controllers/... ./internal/... ./webhooks/... ./test/bench/... ./test/filters/... ./test/frames/... ./test/installer/... ./test/layout/... ./test/newkind/... ./test/numbered/... ./test/report/... ./test/rights/...
PRIVILEGED := $(if $(filter 0,$(shell id -u)),1,)

.PHONY: test-unit
test-unit: pcapfilter ## Run the unit tests; as root also those that use the kernel, in network namespaces of their own.
	REQUIRE_PRIVILEGED=$(PRIVILEGED) go test -p 2 $(UNIT)
	@$(MAKE) --no-print-directory test-hack

.PHONY: test-hack
test-hack: ## Run the unit tests of the modules under hack/.
	cd hack/cluster && REQUIRE_PRIVILEGED=$(PRIVILEGED) go test ./...
	cd hack/cluster/binaries/provisioner && go test -vet=off ./... # vet would check all of Kubernetes
	cd hack/image && go test ./...
	go test ./hack/plugincheck
	cd cmd/releaser && go test ./...
	@hack/release_test.sh
	@hack/demo_test.sh
	cd hack/bundle && go test -count=1 ./... # it reads bundle/, outside of its module: the cache would not see a change

.PHONY: test-race
# Without it each process sleeps for a second before it exits, and tests start many.
test-race: export GORACE := atexit_sleep_ms=20
test-race: pcapfilter ## Run the same tests under the race detector, as make test does.
	CGO_ENABLED=1 REQUIRE_PRIVILEGED=$(PRIVILEGED) go test -race -p 2 $(UNIT)
	@$(MAKE) --no-print-directory test-hack

.PHONY: test-api
test-api: cluster-program pcapfilter ## Test validation rules and webhooks against a real API server.
	@$(CLUSTER) build --only kube,etcd
	KUBEBUILDER_ASSETS="$$($(CLUSTER) bin)" go test -tags api ./test/api/...

.PHONY: test-releaser
test-releaser: cluster-program ## Kill the releaser after each of its writes, against a real API server.
	@$(CLUSTER) build --only kube,etcd
	cd cmd/releaser && KUBEBUILDER_ASSETS="$$($(CLUSTER) bin)" go test -tags api -count=1 -timeout 30m -v -run '^Test(Killed|RollbackRefused|Drift)' ./...

.PHONY: test-schedules
SCHEDULES ?= 1000
SEED      ?= $(shell date +%s)
test-schedules: pcapfilter ## Test the controllers in SCHEDULES random schedules of faults, starting from SEED (docs/reliability.md).
	go test -v -count=1 -timeout 30m -run '^TestSchedules$$' ./controllers/capture ./controllers/fluentpvc ./controllers/intercept -args -schedules $(SCHEDULES) -seed $(SEED)

.PHONY: test-e2e
test-e2e: cluster-up image image-workload image-collector ## Run one end-to-end pass per kind on the local cluster; the shards run the rest.
	@hack/e2e.sh -v -run '^Test(Exactness|SourceExample|KilledProbe|Plugin|ResultsNeedTheVerb|DeletingTheCapture|Trace|FluentPVCLife|InterceptLife|CollectorLife)'

.PHONY: test-olm
test-olm: cluster-up olm-programs image image-workload image-collector image-program ## Test install, upgrade and removal with real OLM, v0 and v1, on the local cluster (with OPENSHIFT=1).
	@OLM_BIN=$(OLM_BIN) IMAGE_TOOL='$(CURDIR)/$(IMAGE_TOOL)' hack/olm.sh -v

# Runs on the kernels of Debian 12 and its backports. They have only cgroup v2, and tests may set their clocks.
VM_KERNELS := 6.1 6.12
.PHONY: test-vm
test-vm: pcapfilter ## Test the agent in virtual machines with other kernels (docs/vm.md).
	@mkdir -p build/vm
	go build -o build/vm/agent ./cmd/agent
	set -e; for package in cmd/agent agents/carrier; do go test -tags vm -c -o build/vm/$$(basename $$package).test ./$$package; done
	set -e; for package in trace gate keeper opener capture capture/processes capture/tc node/process; do go test -c -o build/vm/$$(basename $$package).test ./agents/$$package; done
	go test -c -o build/vm/ebpffilter.test ./agents/capture/ebpffilter
	gcc -static -O1 -o build/vm/int80 agents/trace/testdata/int80.c
	gcc -m32 -nostdlib -static -o build/vm/i386 agents/trace/testdata/i386.S
	gcc -static -O2 -pthread -o build/vm/sockets test/sockets/testdata/sockets.c
	gcc -nostdlib -static -fno-stack-protector -O1 -o build/vm/answered agents/trace/testdata/answered.c
	for program in uring x32 fusehang forkswap; do gcc -static -pthread -O1 -o build/vm/$$program agents/trace/testdata/$$program.c; done
	go test -c -o build/vm/filters.test ./test/filters
	@hack/vm/suite.sh $(VM_KERNELS)

.PHONY: test-fuzz
FUZZTIME ?= 20s
FUZZPART ?= 1/1
test-fuzz: pcapfilter ## Fuzz each parser of untrusted bytes for FUZZTIME; FUZZPART=2/3 runs the second of three parts.
	@hack/fuzz.sh $(FUZZTIME) $(FUZZPART)

.PHONY: test-filters
EXPRESSIONS ?= 2000
test-filters: pcapfilter ## Compare EXPRESSIONS translated filters with libpcap's interpreter (docs/filters.md); as root some run in the kernel.
	REQUIRE_PRIVILEGED=$(PRIVILEGED) go test -v -count=1 -timeout 30m ./test/filters -args -expressions $(EXPRESSIONS) -loads 80 $(if $(filter command line,$(origin SEED)),-seed $(SEED))

.PHONY: test-filter-flood
FLOOD ?= 5m
test-filter-flood: pcapfilter ## Flood the filter compiler as two users for FLOOD, and measure a third one's waiting and the pauses (docs/filters.md).
	go test -v -count=1 -timeout 30m -run '^TestFlood$$' ./internal/operator/filterpool -args -flood $(FLOOD)

SHARD ?=
.PHONY: test-shard
test-shard: deps ## Run one shard of the full suite: SHARD=name (docs/test-matrix.md).
	@hack/shard.sh '$(SHARD)'

.PHONY: test-full
test-full: test ## Run everything, shard by shard.
	@for s in $$(hack/shard.sh --list); do $(MAKE) test-shard SHARD=$$s; done

##@ Benchmarks
ROUNDS ?= 7
BENCH  ?=
# The part to run: capture, trace, intercept or live.
PART   ?= all
# A partial run (BENCH='-only 512') is neither recorded nor compared.
BENCH_OUT := $(if $(BENCH),build/bench/part,$(if $(filter all,$(PART)),build/bench,build/bench/$(PART)))
.PHONY: bench
bench: deps build ## Measure captures, traces, intercepts and live captures, as root (ROUNDS=n, PART=capture|trace|intercept|live), and write docs/benchmarks.md.
	go build -o bin/bench ./test/bench
	cd test/bench/wireguard && go build -o $(CURDIR)/bin/bench-wireguard .
	bin/bench run -agent $(BIN)/agent -out $(BENCH_OUT) -disk build/bench -plugin bin/kubectl-sonde -part $(PART) -rounds $(ROUNDS) $(BENCH)
	@[ -n "$(BENCH)" ] || for section in machine capture trace intercept live; do \
		[ ! -e $(BENCH_OUT)/$$section.md ] || hack/section.sh docs/benchmarks.md $$section < $(BENCH_OUT)/$$section.md; \
	done

.PHONY: bench-compare
bench-compare: ## Check that the ratios of the last two runs of make bench (of the same PART) agree.
	go build -o bin/bench ./test/bench
	@runs=$$(ls $(BENCH_OUT)/*.json | tail -2); bin/bench compare $$runs

.PHONY: clean
clean: ## Remove the build output of this tree.
	rm -rf bin build
