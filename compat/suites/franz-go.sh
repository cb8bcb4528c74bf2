#!/usr/bin/env bash
# franz-go's own kgo test suite against a running broker.
#
#   compat/suites/franz-go.sh HOST:PORT [extra `go test` arguments]
#
# Wants a broker started with group.consumer.heartbeat.interval.ms=1000.
# KGO_TEST_RECORDS (default 500000 in the suite) shrinks it.
set -euo pipefail
seeds=${1:?host:port of a running broker}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init suite >/dev/null 2>&1
go get -t github.com/twmb/franz-go/pkg/kgo@v1.22.3 >/dev/null 2>&1
KGO_SEEDS=$seeds KGO_TEST_RF=1 KGO_LOG_LEVEL=${KGO_LOG_LEVEL:-none} \
	go test -count=1 -timeout "${SUITE_TIMEOUT:-15m}" "$@" github.com/twmb/franz-go/pkg/kgo
