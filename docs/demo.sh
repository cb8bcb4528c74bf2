#!/usr/bin/env bash
# The first minute: start a broker, send a real file through a topic, read it
# back with a group, show the lag, kill -9, start again, nothing is lost.
set -euo pipefail
perigee=$(realpath "${1:-bin/perigee}")
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
cd "$work"
# A port nobody answers on, below those the system gives to outgoing connections.
free_port() {
	local p=$((15000 + RANDOM % 16000))
	while (: <"/dev/tcp/127.0.0.1/$p") 2>/dev/null; do p=$((15000 + RANDOM % 16000)); done
	echo "$p"
}
kafka=127.0.0.1:$(free_port)
export PERIGEE_BROKERS=$kafka
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
start() {
	"$perigee" serve --data-dir "$work/data" --kafka-listen "$kafka" --moonmq-listen off --http-listen off &
	pid=$!
	until "$perigee" cluster info >/dev/null 2>&1; do
		kill -0 "$pid" 2>/dev/null || { echo "the broker did not start" >&2; exit 1; }
		sleep 0.05
	done
}
trap 'kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

say "\$ perigee serve"
start
say "\$ perigee topic create licence --partitions 3"
"$perigee" topic create licence --partitions 3
say "\$ perigee produce licence < LICENSE      ($(grep -c . "$here/LICENSE") lines that are not empty)"
grep . "$here/LICENSE" | "$perigee" produce licence
say "\$ perigee consume licence --group readers -n 5      (five records, then the group stops)"
"$perigee" consume licence --group readers -o start -n 5
say "\$ perigee group describe readers"
"$perigee" group describe readers
say "kill -9, start again on the same directory"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
start
say "\$ perigee consume licence -o start -e | wc -l      (every acknowledged record is there)"
n=$("$perigee" consume licence -o start -e | wc -l)
echo "$n"
[ "$n" = "$(grep -c . "$here/LICENSE")" ] || { echo "records are missing" >&2; exit 1; }
say "\$ perigee group describe readers      (and the committed offsets)"
"$perigee" group describe readers
