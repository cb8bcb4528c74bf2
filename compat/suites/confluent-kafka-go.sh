#!/usr/bin/env bash
# confluent-kafka-go's (librdkafka's) own integration suite against a running
# broker, one suite method at a time; prints a line per method and the counts.
#
#   compat/suites/confluent-kafka-go.sh HOST:PORT
set -euo pipefail
seeds=${1:?host:port of a running broker}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init suite >/dev/null 2>&1
go get -t github.com/confluentinc/confluent-kafka-go/v2/kafka@v2.11.1 >/dev/null 2>&1
go test -c -o suite.test github.com/confluentinc/confluent-kafka-go/v2/kafka
source=$(go list -f '{{.Dir}}' github.com/confluentinc/confluent-kafka-go/v2/kafka)
printf '{"Brokers":"%s","TopicName":"suite","GroupID":"suite","PerfMsgCount":20000,"PerfMsgSize":100}\n' "$seeds" >testconf.json
passed=0 failed=0
run() { # name, arguments…
	local name=$1
	shift
	if timeout "${METHOD_TIMEOUT:-120}" ./suite.test -test.v "$@" >"$name.log" 2>&1 && grep -q -- '--- PASS' "$name.log"; then
		passed=$((passed + 1))
		echo "PASS $name"
	elif grep -q -- '--- SKIP' "$name.log" && ! grep -q -- '--- FAIL' "$name.log"; then
		echo "SKIP $name: $(grep -m1 -iE 'skip' "$name.log" | tr -s ' ')"
	else
		failed=$((failed + 1))
		# A test's own words come last, its log lines before them.
		echo "FAIL $name: $(grep -E '_test\.go:[0-9]+:|panic:' "$name.log" | tail -n 1 | tr -s ' ' | cut -c1-200)"
	fi
}
for method in $(grep -hoE '^func \(its \*IntegrationTestSuite\) (Test[A-Za-z0-9_]+)' "$source"/*_test.go | awk '{print $4}' | sort -u); do
	run "$method" -test.run '^TestIntegration$' -testify.m "^$method\$"
done
for test in $(grep -hoE '^func (TestTransactional[A-Za-z0-9_]*)' "$source"/*_test.go | awk '{print $2}' | sort -u); do
	run "$test" -test.run "^$test\$"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
