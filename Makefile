SHELL := /bin/bash
# Tools are pinned here and kept out of go.mod, so that the gateway's own dependencies stay few.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# The race detector, without its checks of pointers in SQLite, which is C in translation: they take a third of the time.
RACE := -race -gcflags=modernc.org/...=-d=checkptr=0

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: run
run: build ## build and serve with config.yaml: embedded, nothing to install
	bin/gateway serve

.PHONY: build
build: ## build bin/gateway
	go build -o bin/gateway ./cmd/gateway

.PHONY: test
test: ## set up real servers (as root on Debian 12, or name your own) and run every test
	scripts/stack.sh run go test -count=1 -v -run TestServersAnswer ./test/servers
	scripts/stack.sh run go test $(RACE) -shuffle=on -timeout 30m ./...
	cd test/k6 && go test $(RACE) -shuffle=on ./...
	cd test/deploy && go test -shuffle=on ./...
	scripts/screenshots.sh check

.PHONY: image
image: ## build the container image keyrange (VERSION=v1.2.3)
	docker build --build-arg VERSION=$(or $(VERSION),dev) --tag keyrange$(VERSION:%=:%) .

.PHONY: release
release: ## build archives, lists of modules and sums of a version into dist/ (VERSION=v1.2.3)
	scripts/release.sh $(VERSION)

.PHONY: sim
sim: ## play the record protocol on simulated databases, with 100,000 seeds (SIM_SEEDS=n for more; a minute)
	SIM_SEEDS=$(or $(SIM_SEEDS),100000) go test -count=1 -v -timeout 0 -run '^TestSimulation$$' ./store

.PHONY: fuzz
fuzz: ## let each fuzz test look for a minute
	go test -run '^$$' -fuzz FuzzMap -fuzztime 60s ./rangeshard
	go test -run '^$$' -fuzz FuzzDocument -fuzztime 60s ./handlers

.PHONY: soak
soak: ## two gateways under load while servers and networks fail at random (10 minutes; SOAK=60s for a look)
	SOAK=$${SOAK:-10m} scripts/stack.sh run go test -count=1 -timeout 0 -v -run '^TestSoak$$' ./test/faults

.PHONY: bench
bench: ## compare with one-by-one clients on real servers, write docs/benchmarks (45 minutes; BENCH=-quick for a look)
	scripts/stack.sh run go run ./test/bench $(BENCH)

.PHONY: page
page: ## look at the operators' page in Chromium and keep its pictures in docs/ui (11 minutes; PAGE=check for the tests alone)
	scripts/screenshots.sh $(PAGE)

.PHONY: lint
lint: ## golangci-lint with .golangci.yml, gofmt, and go vet
	test -z "$$(gofmt -l .)"
	go vet ./...
	go run $(GOLANGCI_LINT) run ./...

.PHONY: vuln
vuln: ## govulncheck (needs its database from the network)
	go run $(GOVULNCHECK) ./...

.PHONY: servers
servers: ## start the real servers that tests and benchmarks use
	scripts/stack.sh up

.PHONY: servers-down
servers-down: ## stop them
	scripts/stack.sh down
