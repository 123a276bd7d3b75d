# Every target works on the five modules; go.work joins them, but "./..." stops at a module's border.
MODULES  := . brokers cmd/inboxctl examples tests
PACKAGES := ./... ./brokers/... ./cmd/inboxctl/... ./examples/... ./tests/...

# Flags for `go test`, such as TESTFLAGS='-run TestRedelivery -v'. How often test_race repeats each test.
TESTFLAGS ?=
COUNT     ?= 1
# How long fuzz tries each target.
FUZZTIME  ?= 60s
# Flags for the benchmarks.
BENCHFLAGS ?= -benchmem

GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# What may not reach the binary of a user of the shipped packages: test libraries, SQLite drivers, broker clients.
FORBIDDEN := stretchr/testify|modernc.org/sqlite|mattn/go-sqlite3|glebarez/|ncruces/go-sqlite3|zombiezen.com/go/sqlite|rabbitmq/amqp091-go|nats-io/nats.go|redis/go-redis|IBM/sarama|Shopify/sarama|twmb/franz-go|segmentio/kafka-go|confluentinc/|watermill-(amqp|nats|redisstream|kafka)

# With services: they are started where needed and their addresses put into the environment. Results are never taken
# from the cache, which knows nothing of servers, and two packages at most share the databases at a time.
WITH_SERVICES = scripts/services && env="$$(scripts/services env)" && eval "$$env" &&
TEST_SERVICES = $(WITH_SERVICES) go test -p 2

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help up test test_short test_race fuzz faults soak bench bench_queue lint fmt check-deps

help: ## Show the targets
	@sed -nE 's/^([a-z_-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
		printf '%-12s %s\n' "$$target" "$$text"; done

up: ## Start the databases and brokers of the tests
	@scripts/services up

test: ## Run all tests, with real databases and brokers; TESTFLAGS='-run ...' for some
	@$(TEST_SERVICES) -count=1 $(TESTFLAGS) $(PACKAGES)

test_short: ## Run the tests that need nothing but Go: SQLite and GoChannel
	go test -short $(TESTFLAGS) $(PACKAGES)

test_race: ## Run all tests with the race detector, COUNT=1 times each
	@$(TEST_SERVICES) -race -count=$(COUNT) $(TESTFLAGS) $(PACKAGES)

fuzz: ## Fuzz every target for FUZZTIME=60s, one after the other; TESTFLAGS='-race' for more
	@$(WITH_SERVICES) for package in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(PACKAGES)); do \
		targets="$$(go test -list '^Fuzz' "$$package")"; \
		for target in $$(grep '^Fuzz' <<<"$$targets" || true); do \
			echo "== $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $(TESTFLAGS) "$$package"; \
		done; \
	done

faults: ## Break every database at every step and print what becomes of it; INBOX_TEST_SEED=1 replays, COUNT=5 repeats
	@$(WITH_SERVICES) cd tests/faults && go test -race -count=$(COUNT) -timeout 30m $(TESTFLAGS)

soak: ## Kill consumers and restart databases under 10,000 messages, for minutes; TESTFLAGS='-run TestSoak/mariadb' for one
	@$(WITH_SERVICES) INBOX_TEST_SOAK=full go test -p 1 -v -race -count=$(COUNT) -timeout 60m -run 'TestSoak|TestKills' $(TESTFLAGS) \
		./tests/soak ./tests/deferred

bench: ## Run the benchmarks; BENCHFLAGS='-benchtime=3s ...'
	@$(WITH_SERVICES) go test -p 1 -run '^$$' -bench . $(BENCHFLAGS) ./... ./tests/...

# A module outside the workspace, so that River does not raise the versions that all tests run with.
bench_queue: ## Compare the deferred mode with River on 40,000 messages
	@$(WITH_SERVICES) cd tests/bench && GOWORK=off go test -run '^$$' -bench . -benchtime=1x -timeout 60m $(TESTFLAGS)

lint: ## Check format, go vet and golangci-lint
	@unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; }
	go vet $(PACKAGES)
	@for module in $(MODULES); do echo "golangci-lint run in $$module"; \
		(cd $$module && $(GOLANGCI) run --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...) || exit; done
	@echo "golangci-lint run in tests/bench"; cd tests/bench && GOWORK=off go vet ./... && \
		GOWORK=off $(GOLANGCI) run --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...

fmt: ## Format all Go code
	gofmt -w .

# internal/modernc is for tests: a shipped package that imported it would need SQLite itself.
check-deps: ## Check that go.mod files are tidy and that nothing forbidden is shipped
	@for module in $(MODULES) tests/bench; do echo "go mod tidy -diff in $$module"; \
		(cd $$module && GOWORK=off go mod tidy -diff) || exit; done
	@echo 'go list -deps of the shipped packages'
	@deps=$$(GOWORK=off go list -f '{{$$p := .ImportPath}}{{range .Deps}}{{$$p}} needs {{.}}{{"\n"}}{{end}}' ./... | grep -v '^[^ ]*/internal/modernc '); \
		! grep -E ' needs .*($(FORBIDDEN))' <<<"$$deps" || { echo 'a shipped package may not need these'; exit 1; }
