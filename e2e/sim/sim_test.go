package sim

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/e2e/workload"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "first seed of the simulation (0: from the clock)")
	simScale = flag.Int("sim.scale", 1, "how many times as many scripts and long runs; 50 for a night")
	simFull  = flag.Bool("sim.full", false, "cut every recovery after each of its changes, not after one")
	simTurns = flag.Int("sim.turns", 2_000, "length of a long run")
)

// One processor, so that what works beside a request (a checkpoint) is ordered the
// same way whenever possible; see the package page.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// firstSeed is where a test's seeds begin, and how to come back.
func firstSeed(t *testing.T) uint64 {
	seed := *simSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixMilli())
	}
	t.Logf("first seed %d (again: -sim.seed %d)", seed, seed)
	return seed
}

// scripts are the casts of the short runs: what is enumerated must be short, so
// not everybody is in each.
var scripts = []Script{
	{Turns: 50, Crowd: workload.Crowd{Writers: 2, Copiers: 1}},
	{Turns: 50, Crowd: workload.Crowd{Copiers: 3, Sharers: 2}},
	{Turns: 60, Crowd: workload.Crowd{Writers: 2, Readers: true, Around: true}},
	{Turns: 40, Crowd: workload.Crowd{Around: true}},
}

// total adds up reports.
type total struct {
	checker.Report
	pictures, recoveries int
}

func (n *total) add(r checker.Report) {
	n.Txns += r.Txns
	n.Committed += r.Committed
	n.Aborted += r.Aborted
	n.Undecided += r.Undecided
	n.Values += r.Values
	n.WWCycles += r.WWCycles
	n.Anomalies = append(n.Anomalies, r.Anomalies...)
}

// The power goes at every operation that changes the disk of a short script,
// with what was not synced lost, kept in part and torn, or all kept; and once
// more while the broker recovers. Whatever was left, the clients that go on see
// no anomaly.
func TestEveryCrashPointOfScripts(t *testing.T) {
	seed := firstSeed(t)
	var all total
	for i := range len(scripts) * *simScale {
		s := scripts[i%len(scripts)]
		s.Seed = seed + uint64(i)
		s.enumerate(t, &all)
	}
	t.Logf("%d pictures of a disk that lost its power, %d recoveries (all but one of a picture cut, too): %s", all.pictures, all.recoveries, all.Report)
}

// enumerate runs a script and survives all of its pictures.
func (s Script) enumerate(t *testing.T, all *total) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, s.Seed)
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	pictures, _ := s.run(t)
	for _, p := range pictures {
		all.pictures++
		r, changes := s.survive(t, p, 0)
		all.add(r)
		all.recoveries++
		for _, again := range cuts(changes, rng) {
			r, _ = s.survive(t, p, again)
			all.add(r)
			all.recoveries++
		}
	}
}

// cuts are the changes of a recovery after which it is cut.
func cuts(changes int, rng *rand.Rand) []int {
	if changes == 0 {
		return nil
	}
	if !*simFull {
		if rng.IntN(3) > 0 {
			return nil
		}
		return []int{1 + rng.IntN(changes)}
	}
	var all []int
	for n := range changes {
		all = append(all, n+1)
	}
	return all
}

// Everybody works for a long time on a computer that is cut, whose disk fails,
// fills and slows down, and whose clock jumps. There is no anomaly.
func TestLongRuns(t *testing.T) {
	seed := firstSeed(t)
	var all total
	var tally Tally
	for i := range 40 * *simScale {
		l := Long{Seed: seed + uint64(i), Turns: *simTurns}
		o := l.run(t)
		all.add(o.Report)
		tally.add(o.Tally)
	}
	t.Logf("%s: %s", tally, all.Report)
}

func (n *Tally) add(o Tally) {
	sum, more := reflect.ValueOf(n).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// Seeds that failed once.
func TestSeedsThatFailedOnce(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		t.Run(strings.TrimSpace(line), func(t *testing.T) {
			var kind string
			var seed uint64
			var n int
			if _, err := fmt.Sscan(line, &kind, &seed, &n); err != nil {
				t.Fatal(err)
			}
			if kind == "long" {
				Long{Seed: seed, Turns: n}.run(t)
				return
			}
			s := scripts[n]
			s.Seed = seed
			s.enumerate(t, new(total))
		})
	}
}

// What a script does depends on its seed and nothing else: two runs have the same
// history.
func TestSameSeedSameRun(t *testing.T) {
	for _, s := range scripts {
		s.Seed = 4
		cryptotest.SetGlobalRandom(t, s.Seed)
		_, first := s.run(t)
		cryptotest.SetGlobalRandom(t, s.Seed)
		if _, second := s.run(t); !reflect.DeepEqual(first, second) {
			t.Errorf("script of %+v: the histories differ", s.Crowd)
		}
	}
}
