# `make run` shows a broker at work; `make test` is everything CI runs.
SHELL := bash
GO ?= go
BIN := bin/perigee
DEBIAN := gcc libc6-dev kcat lua5.4 lua-socket lua-sec
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build run serve test deps vet unit race e2e fuzz soak suites bench clean

build:
	CGO_ENABLED=0 $(GO) build -o $(BIN) ./cmd/perigee # static: nothing of the C library is mapped

serve: build
	$(BIN) serve

# A broker on free ports and a throw-away directory, a real file through a topic and back.
run: build
	./docs/demo.sh $(BIN)

# Debian packages the tests use, when we are root and apt is there; without them the tests that need them are skipped by name.
deps:
	@command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || exit 0; \
	missing=$$(for p in $(DEBIAN); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	[ -z "$$missing" ] || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }

test: deps vet unit race e2e
	$(MAKE) fuzz FUZZRUNS=50000

vet:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

unit:
	$(GO) test -count=1 -timeout 10m $$($(GO) list ./... | grep -v /e2e)

race:
	$(GO) test -count=1 -race -short -timeout 10m ./storage/... ./coordinator/... ./server/...

e2e:
	$(GO) test -count=1 -timeout 18m ./e2e/...

# Longer runs; each has a short version in `make test`.
# The fuzzers run for a number of inputs: go test may report the end of a time as a failure.
FUZZRUNS ?= 500000
fuzz:
	@for pkg in $$($(GO) list ./... | grep -v /e2e); do for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
		echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZRUNS)x $$pkg || exit 1; done; done

KILLS ?= 1000
SCALE ?= 50
soak:
	$(GO) test -count=1 -timeout 3h -v -run 'TestNothingAcknowledgedIsLost|TestTransactionsSurviveKills' ./e2e -crash.kills $(KILLS) -txn.kills $(KILLS)
	$(GO) test -count=1 -timeout 3h -v -run 'EveryCrashPoint|LongRuns' ./e2e/sim -sim.scale $(SCALE)

# Other people's test suites, against BROKER=host:port.
suites:
	compat/suites/franz-go.sh $(BROKER)
	compat/suites/confluent-kafka-go.sh $(BROKER)

bench:
	$(GO) test -run '^$$' -bench . -benchtime 2s ./storage/... ./protocol/... ./coordinator/...

clean:
	rm -rf bin
