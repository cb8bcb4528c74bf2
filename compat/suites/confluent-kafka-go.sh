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
		echo "FAIL $name: $(grep -m1 -E 'Error:|Fail|panic|expected|_test.go' "$name.log" | tr -s ' ' | cut -c1-200)"
	fi
}
for method in $(grep -hoE '^func \(its \*IntegrationTestSuite\) (Test[A-Za-z0-9_]+)' "$source"/*_test.go | awk '{print $4}' | sort -u); do
	run "$method" -test.run '^TestIntegration$' -testify.m "^$method\$"
done
run TestTransactional -test.run '^TestTransactional'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
