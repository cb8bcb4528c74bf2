#!/usr/bin/env bash
# franz-go's end-to-end tests (produce, consume and produce again, in groups and
# in transactions, every record exactly once) while the broker is killed with
# SIGKILL every PERIOD seconds and started again on the same directory.
#
#   compat/suites/franz-go-under-kills.sh path/to/perigee [PERIOD=8]
set -euo pipefail
perigee=$(realpath "${1:?path of the perigee binary}")
period=${2:-8}
here=$(cd "$(dirname "$0")" && pwd)
data=$(mktemp -d)
port=${PORT:-29092}
serve() {
	"$perigee" serve --data-dir "$data/d" --kafka-listen "127.0.0.1:$port" --moonmq-listen off --http-listen off \
		--set group.consumer.heartbeat.interval.ms=1000 >>"$data/log" 2>&1 &
	pid=$!
}
serve
(
	trap 'kill -9 "$pid" 2>/dev/null; exit 0' TERM
	kills=0
	while sleep "$period" & wait $!; do
		kill -9 "$pid" && kills=$((kills + 1))
		wait "$pid" 2>/dev/null || true
		echo "$kills" >"$data/kills"
		serve
		echo "$pid" >"$data/pid"
	done
) &
loop=$!
trap 'kill "$loop" 2>/dev/null; kill -9 "$(cat "$data/pid" 2>/dev/null || echo "$pid")" 2>/dev/null; rm -rf "$data"' EXIT
status=0
"$here/franz-go.sh" "127.0.0.1:$port" -run "${RUN:-TestGroupETL|TestTxnEtl}" || status=$?
echo "the broker was killed $(cat "$data/kills" 2>/dev/null || echo 0) times"
exit "$status"
