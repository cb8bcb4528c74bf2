#!/usr/bin/env bash
# franz-go's end-to-end tests (produce, consume and produce again, in groups and
# in transactions, every record exactly once) while the broker is killed with
# SIGKILL every PERIOD seconds and started again on the same directory.
#
#   compat/suites/franz-go-under-kills.sh path/to/perigee [PERIOD=8]
#
# franz-go reports a refused dial to a polling group member at once if there is
# one broker only, and its tests count that as a failure. So the clients dial a
# relay that accepts while the broker is dead; connections that were open break
# all the same. RELAY=off leaves it out.
set -euo pipefail
perigee=$(realpath "${1:?path of the perigee binary}")
period=${2:-8}
here=$(cd "$(dirname "$0")" && pwd)
data=$(mktemp -d)
port=${PORT:-29092}
behind=$((port + 1))
relay=
if [ "${RELAY:-on}" = off ]; then
	behind=$port
else
	(cd "$here" && go build -o "$data/relay" ./relay)
	"$data/relay" "127.0.0.1:$port" "127.0.0.1:$behind" &
	relay=$!
fi
serve() {
	"$perigee" serve --data-dir "$data/d" --kafka-listen "127.0.0.1:$behind" --moonmq-listen off --http-listen off \
		--set "advertised.listeners=PLAINTEXT://127.0.0.1:$port" --set group.consumer.heartbeat.interval.ms=1000 >>"$data/log" 2>&1 &
	echo $! >"$data/pid"
}
serve
(
	kills=0
	while sleep "$period"; do
		pid=$(cat "$data/pid")
		kill -9 "$pid" && kills=$((kills + 1))
		wait "$pid" 2>/dev/null || true
		echo "$kills" >"$data/kills"
		serve
	done
) &
loop=$!
finish() {
	kill "$loop" $relay 2>/dev/null || true
	kill -9 "$(cat "$data/pid")" 2>/dev/null || true
	rm -rf "$data"
}
trap finish EXIT
status=0
"$here/franz-go.sh" "127.0.0.1:$port" -run "${RUN:-TestGroupETL|TestTxnEtl}" || status=$?
echo "the broker was killed $(cat "$data/kills" 2>/dev/null || echo 0) times"
exit "$status"
