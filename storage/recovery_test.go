package storage

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

func TestACleanStopIsFollowedByACleanStart(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("a", "b")})
	put(t, e, Append{Partition: p, Batch: plain("c")})
	first := e.Identity()
	shut(t, e)

	var result RecoveryResult
	e = open(t, fs, func(o *Options) { o.Events.Recovered = func(r RecoveryResult) { result = r } })
	if !result.Clean || result.Entries != 0 {
		t.Errorf("recovery %+v, want a clean start", result)
	}
	second := e.Identity()
	if second.ClusterID != first.ClusterID || second.Incarnation != first.Incarnation+1 || !second.CleanStart {
		t.Errorf("identity %+v after %+v", second, first)
	}
	p = part(t, e, 1)
	if got, want := values(t, p), []string{"0:a", "1:b", "2:c"}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	put(t, e, Append{Partition: p, Batch: plain("d")})
	if got := values(t, p); len(got) != 4 || got[3] != "3:d" {
		t.Errorf("after another append: %v", got)
	}
}

func TestWhatWasAcknowledgedSurvivesACrash(t *testing.T) {
	fs := vfs.NewMemory()
	for round := range 5 {
		e := open(t, fs)
		p := part(t, e, 1)
		for range 10 {
			put(t, e, Append{Partition: p, Batch: plain("x")}, Append{Partition: part(t, e, 2), Batch: plain("y")})
		}
		fs = fs.Crash(rand.New(rand.NewPCG(1, uint64(round))))
		e = open(t, fs)
		want := model.Offset(10 * (round + 1))
		for n := range 2 {
			if b := part(t, e, n+1).Bounds(); b.High != want || b.Stable != want || b.End != want {
				t.Fatalf("round %d, partition %d: %+v, want %d", round, n, b, want)
			}
			if got := values(t, part(t, e, n+1)); len(got) != int(want) {
				t.Fatalf("round %d, partition %d: %d records, want %d", round, n, len(got), want)
			}
		}
		fs = fs.Crash(rand.New(rand.NewPCG(2, uint64(round))))
	}
}
