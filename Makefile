# lastword. `make run` shows what it is for, `make test` checks everything.

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build test check fmt generate baseline model soak mutants fuzz bench clean \
	need-go need-race need-servers need-spin need-verify tools format-check vet lint imports generated unit alerts peers

GO       ?= go
BIN      := bin/lastword
TOOLS    := .tools
LINT     := $(TOOLS)/golangci-lint
BUF      := PATH="$(CURDIR)/$(TOOLS):$$PATH" $(TOOLS)/buf
VERSION   = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BASELINE := rpc/baseline.binpb
FUZZTIME ?= 10s
BENCH    ?= .
COUNT    ?= 1

# Everything is built without cgo; only the race detector needs a C compiler.
export CGO_ENABLED := 0
# The linter's own cache is shared by all clones of a user and then names files of
# another one.
export GOLANGCI_LINT_CACHE := $(CURDIR)/$(TOOLS)/lint-cache

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

# ---- see it -----------------------------------------------------------------

# What `make run` shows, in this order. Change it here and nowhere else.
run: build ## a paused worker overwrites its successor; then the fence refuses it; then an authority to play with
	@$(BIN) lab takeover --fence=off
	@echo
	@$(BIN) lab takeover --fence=on
	@echo
	@$(BIN) dev --dir bin/dev

build: need-go ## bin/lastword
	@mkdir -p bin
	$(GO) build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION)' -o $(BIN) ./cmd/lastword

# ---- check it ---------------------------------------------------------------

test: need-go need-race need-servers need-verify tools format-check vet lint imports generated unit alerts peers ## everything that CI runs; stops at the first failure

check: need-go tools format-check lint ## format and lint only, quick

format-check:
	@echo '--- format and go.mod'
	@$(LINT) fmt --diff || { echo 'run: make fmt' >&2; exit 1; }
	@$(GO) mod tidy -diff || { echo 'run: go mod tidy' >&2; exit 1; }

vet:
	@echo '--- build and vet'
	@$(GO) build -buildvcs=false ./...
	@$(GO) vet ./...
	@cd internal/realservers/peers && { $(GO) mod tidy -diff || { echo 'run: go mod tidy in internal/realservers/peers' >&2; exit 1; }; } && $(GO) vet ./...

lint:
	@echo '--- lint'
	@$(LINT) run ./...

imports:
	@echo '--- imports'
	@$(GO) test -run 'Import|TestTable|UnknownPackage|GuardedDatabase' .

generated:
	@echo '--- schema and generated code'
	@$(TOOLS)/buf lint
	@set -euo pipefail; \
	tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; mkdir "$$tmp/committed" "$$tmp/generated"; \
	find rpc \( -name '*.pb.go' -o -name '*.pb.gw.go' -o -name '*.swagger.json' \) -print0 | tar --null -T - -cf - | tar -xf - -C "$$tmp/committed"; \
	$(BUF) generate -o "$$tmp/generated"; \
	cd "$$tmp" && diff -ru committed generated || { echo 'generated code differs: run: make generate' >&2; exit 1; }
	@echo '--- schema, compared with the baseline'
	@$(TOOLS)/buf breaking --against $(BASELINE) || { echo 'that breaks callers and resources that are out there; docs/decisions/0009-http.md says when the baseline is renewed' >&2; exit 1; }

# Twice on purpose: SQLite without cgo is ten times slower under the race
# detector, so heavy tests step aside in short mode and run in the second pass.
unit:
	@echo '--- tests, race detector on, heavy ones left out'
	@CGO_ENABLED=1 $(GO) test -race -short -timeout 10m ./...
	@echo '--- tests, all of them'
	@$(GO) test -timeout 10m ./...

# In a module of its own, so that nobody who builds lastword needs Prometheus's parser.
# The test cache does not know of files outside of it: -count=1.
alerts:
	@echo '--- alert rules'
	@cd internal/alertrules && $(GO) vet ./... && $(GO) test -count=1 -timeout 5m ./...

# In a module of its own, so that no ORM is in the product's go.mod.
peers:
	@echo '--- an ORM at protected tables'
	@cd internal/realservers/peers && $(GO) test -timeout 5m ./...

# The largest scope has all worlds of the smaller ones.
model: build need-spin ## the model at its largest scope, every broken variant, and spin's second opinion; about five minutes
	$(BIN) lab model --scope large
	$(BIN) lab model --variant all -o json >bin/variants.json
	spec/promela/run.sh

# Seeds are fixed here, so that a failure says which run it was; SEED=n takes another one.
SEED ?= 1

soak: build ## 10,000,000 simulated rounds, 10,000 with real processes, every defect found; about half an hour
	$(BIN) lab soak --rounds 10000000 --seed $(SEED) --unsigned
	$(BIN) lab soak --real --rounds 10000 --seed $(SEED) --out bin/soak.json --report bin/soak.html --force
	$(BIN) lab soak --variant all --seed $(SEED) --unsigned
	$(BIN) lab soak --real --variant all --seed $(SEED)

mutants: need-go ## every condition of internal/core and of the adapters' SQL made wrong, one at a time: do model and kit notice; about half an hour
	LASTWORD_MUTANTS=1 $(GO) test -run TestTheModelNoticesEveryWrongConditionOfTheRules -timeout 3h -v ./model
	LASTWORD_MUTANTS=1 $(GO) test -run TestTheKitNoticesEveryWrongConditionOfTheSQL -timeout 3h -v ./internal/fencesql
	LASTWORD_MUTANTS=1 $(GO) test -run 'TestTheTableNoticesEveryWrongComparisonOfTheFunction|TestEveryConditionOf' -timeout 3h -v ./fence/sqlfence

fuzz: need-go ## every fuzz target for FUZZTIME (10s) each, and a million mutated grants
	$(GO) test ./grant -run TestMutatedGrants -mutations 1000000 -v
	@set -euo pipefail; \
	pkgs=$$($(GO) list ./...); \
	for pkg in $$pkgs; do \
		listed=$$($(GO) test -list '^Fuzz' "$$pkg"); \
		for target in $$(sed -n '/^Fuzz/p' <<<"$$listed"); do \
			echo "--- $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"; \
		done; \
	done

bench: need-go ## Go benchmarks; BENCH=regexp COUNT=10 for benchstat (against peers: bin/lastword bench)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

# ---- change it --------------------------------------------------------------

fmt: need-go tools ## format all Go files
	$(LINT) fmt

generate: need-go tools ## Go code and OpenAPI file from the schema
	$(BUF) generate

# After a release, and in no other commit: what was released must not break.
baseline: need-go tools ## the schema as it is, for the check of breaking changes
	$(TOOLS)/buf build --exclude-source-info -o $(BASELINE)

clean: ## remove what was built, the pinned tools included
	rm -rf bin $(TOOLS)

# ---- what the above need ----------------------------------------------------

need-go:
	@command -v $(GO) >/dev/null || { echo 'lastword needs Go 1.26 or newer, found none: https://go.dev/dl/' >&2; exit 1; }
	@minor=$$($(GO) env GOVERSION 2>/dev/null | sed -n 's/^.*go1\.\([0-9]*\).*$$/\1/p'); \
	[ "$${minor:-0}" -ge 26 ] || { echo "lastword needs Go 1.26 or newer, found: $$(GOTOOLCHAIN=local $(GO) version): https://go.dev/dl/" >&2; exit 1; }

need-race:
	@set -euo pipefail; \
	missing=''; \
	for need in git curl python3; do command -v $$need >/dev/null || missing="$$missing $$need"; done; \
	command -v "$$(CGO_ENABLED=1 $(GO) env CC)" >/dev/null || missing="$$missing gcc libc6-dev"; \
	[ "$$(id -u)" != 0 ] || [ "$$(uname)" != Linux ] || command -v ip >/dev/null || missing="$$missing iproute2"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "--- installing$$missing"; \
		apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "make test needs$$missing (the race detector is built with a C compiler, silent loss with network namespaces, HTTP is called with curl and Python); as root: apt-get install$$missing" >&2; exit 1; \
	fi

need-verify:
	@set -euo pipefail; \
	missing=''; \
	/usr/bin/python3 -c 'import jwt, cryptography' 2>/dev/null || python3 -c 'import jwt, cryptography' 2>/dev/null || missing="$$missing python3-jwt python3-cryptography"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "--- installing$$missing"; \
		apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "make test needs$$missing (grants are verified in other languages); as root: apt-get install$$missing" >&2; exit 1; \
	fi

# The peers and back ends that tests start as child processes. Their services are not
# needed, and not started where no init runs.
need-servers:
	@set -euo pipefail; \
	missing=''; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	[ -e /usr/share/java/zookeeper.jar ] || missing="$$missing zookeeper"; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	[ -x /usr/sbin/pgbouncer ] || missing="$$missing pgbouncer"; \
	command -v psql >/dev/null || missing="$$missing postgresql-client"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || missing="$$missing faketime"; \
	/usr/bin/python3 -c 'import psycopg2' 2>/dev/null || missing="$$missing python3-psycopg2"; \
	[ -x /usr/sbin/mariadbd ] || missing="$$missing mariadb-server"; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "--- installing$$missing"; \
		apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "make test needs$$missing (real servers); as root: apt-get install$$missing" >&2; exit 1; \
	fi

need-spin:
	@set -euo pipefail; \
	command -v spin >/dev/null && command -v gcc >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo '--- installing spin and gcc'; \
		apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends spin gcc libc6-dev; \
	else \
		echo 'make model needs spin and gcc; as root: apt-get install spin gcc libc6-dev' >&2; exit 1; \
	fi

# Pinned in internal/tools/go.mod; rebuilt when a pin, or the Go that built them,
# changes. protoc-gen-go comes from the library's own protobuf version, so that
# generator and runtime cannot differ; of the transcoder both versions are compared.
tools:
	@set -euo pipefail; \
	gateway=github.com/grpc-ecosystem/grpc-gateway/v2; \
	[ "$$($(GO) list -m $$gateway)" = "$$(cd internal/tools && $(GO) list -m $$gateway)" ] || { echo "go.mod and internal/tools/go.mod have different versions of $$gateway" >&2; exit 1; }; \
	pin=$$(cksum internal/tools/go.mod internal/tools/go.sum; $(GO) list -m google.golang.org/protobuf; $(GO) env GOVERSION); \
	ready=yes; \
	for tool in golangci-lint buf protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway protoc-gen-openapiv2; do [ -x "$(TOOLS)/$$tool" ] || ready=no; done; \
	[ "$$ready" = yes ] && [ "$$pin" = "$$(cat $(TOOLS)/pin 2>/dev/null)" ] && exit 0; \
	echo '--- building the pinned tools, once; about two minutes'; \
	rm -rf $(TOOLS); mkdir $(TOOLS); \
	(cd internal/tools && $(GO) build -buildvcs=false -o ../../$(TOOLS)/ tool); \
	$(GO) build -buildvcs=false -o $(TOOLS)/ google.golang.org/protobuf/cmd/protoc-gen-go; \
	printf '%s\n' "$$pin" > $(TOOLS)/pin
