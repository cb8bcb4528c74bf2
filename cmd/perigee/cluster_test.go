package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestClusterVerbs(t *testing.T) {
	s := newShell(t, "t")
	host, port, _ := strings.Cut(s.brokers, ":")
	equal(t, s.run("cluster", "info"), lines(
		"CLUSTER", "ID          fake", "CONTROLLER  0", "TOPICS      1", "PARTITIONS  1", "",
		"BROKERS", "ID  HOST       PORT   RACK", fmt.Sprintf("0   %s  %s  krack", host, port)))
	equal(t, s.run("cluster", "health", "-e", "-w"), lines(
		"HEALTH", "HEALTHY           true", "BROKERS           [0]", "CONTROLLER        0",
		"LEADERLESS        -", "UNDER-REPLICATED  -", "OFFLINE-DIRS      -", "UNREADABLE        -"))
	if out := s.run("cluster", "features"); !strings.Contains(out, "FEATURE ") || !strings.Contains(out, "transaction.version ") {
		t.Errorf("features:\n%s", out)
	}
	s.input("x\n", "produce", "t")
	var dirs []logDirReport
	if err := json.Unmarshal([]byte(s.run("cluster", "logdirs", "-t", "t", "--format", "json")), &dirs); err != nil {
		t.Fatal(err)
	}
	if len(dirs) != 1 || len(dirs[0].Partitions) != 1 || dirs[0].Partitions[0].Bytes <= 0 {
		t.Errorf("%+v", dirs)
	}
}

func TestBenchVerbs(t *testing.T) {
	s := newShell(t, "there")
	measure := func(args ...string) benchReport {
		t.Helper()
		var r benchReport
		if err := json.Unmarshal([]byte(s.run(append([]string{"bench", "--format", "json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	produced := measure("produce", "-n", "500", "--size", "100", "-t", "there", "-z", "lz4")
	if produced.Records != 500 || produced.Bytes != 50_000 || produced.Failed != 0 || produced.Latency == nil || produced.Latency.P50 > produced.Latency.Max {
		t.Errorf("%+v", produced)
	}
	consumed := measure("consume", "-t", "there")
	if consumed.Records != 500 || consumed.Bytes != 50_000 || consumed.Latency != nil {
		t.Errorf("%+v", consumed)
	}
	if some := measure("consume", "-t", "there", "-n", "100"); some.Records < 100 {
		t.Errorf("%+v", some)
	}
	if r := measure("e2e", "-n", "5", "-t", "new"); r.Records != 5 || r.Latency == nil {
		t.Errorf("%+v", r)
	}
	s.fail(exitFailed, "perigee: nowhere: UNKNOWN_TOPIC_OR_PARTITION", "bench", "consume", "-t", "nowhere")
	measure("produce", "-n", "10", "--rate", "1000", "-t", "kept", "--keep", "-p", "2")
	// What bench created it has deleted, unless told not to.
	equal(t, s.run("topic", "list"), lines("TOPIC  PARTITIONS  REPLICAS", "kept   2           1", "there  1           1"))
	if out := s.run("bench", "produce", "-n", "10"); !strings.HasPrefix(out, "RECORDS  FAILED  SECONDS  RECORDS/S  MIB/S  MEAN-MS  P50  ") {
		t.Error(out)
	}
}
