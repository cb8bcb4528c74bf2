package e2e

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	crashKills = flag.Int("crash.kills", 50, "SIGKILLs in the crash tests")
	crashSeed  = flag.Uint64("crash.seed", 0, "seed of the kill times (0: from the clock)")
)

// killer ends the broker with SIGKILL at random moments and starts it again on
// the same directory, n times; it returns when the last start serves.
func killer(t *testing.T, b *Broker, n int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		time.Sleep(time.Duration(20+rng.IntN(280)) * time.Millisecond) // the moment of the kill is the experiment
		b.Kill()
		if i%7 == 3 { // a second crash while it recovers from the first
			if err := b.Spawn(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
			b.Kill()
		}
		b.Restart()
	}
}

func seedFor(t *testing.T) uint64 {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -crash.seed)", seed)
	return seed
}

// acked is one acknowledged record: where the broker said it is.
type acked struct {
	partition int32
	offset    int64
}

// Producers with acks=all and idempotence write while the broker is killed
// again and again. Afterwards every acknowledged record is there once, at the
// offset it was acknowledged at, in the producer's order; and no committed
// offset that was acknowledged has gone back.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	seed := seedFor(t)
	const partitions, producers = 4, 4
	topic := topicName("crash")
	franz{}.CreateTopic(t, b.Kafka, topic, partitions)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[uint64]acked{} // value → place
	for w := range uint64(producers) {
		wg.Go(func() {
			cl := kgoClient(t, b.Kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1), kgo.RecordDeliveryTimeout(5*time.Minute),
				kgo.RequestRetries(10_000), kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MaxBufferedRecords(64), kgo.ProducerLinger(0))
			for n := uint64(0); ctx.Err() == nil; n++ {
				value := w<<40 | n
				r := &kgo.Record{Topic: topic, Partition: int32((w + n) % partitions), Value: binary.BigEndian.AppendUint64(nil, value)}
				cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
					if err != nil {
						t.Errorf("value %x: %v", value, err)
						return
					}
					mu.Lock()
					got[value] = acked{r.Partition, r.Offset}
					mu.Unlock()
				})
			}
			flush, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
	var committed atomic.Int64
	wg.Go(func() { commitLoop(ctx, t, b.Kafka, topic, &committed) })

	killer(t, b, *crashKills, seed)
	stop()
	wg.Wait()
	checkAcked(t, b.Kafka, topic, partitions, got)
	offsets, err := kadmClient(t, b.Kafka).FetchOffsets(limited(t), "crash-group")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := offsets.Lookup(topic, 0); o.At < committed.Load() {
		t.Errorf("the committed offset is %d after the last crash, %d was acknowledged", o.At, committed.Load())
	}
	t.Logf("%d kills, %d records acknowledged, %d commits acknowledged: nothing lost", *crashKills, len(got), committed.Load())
}

// commitLoop commits 1, 2, 3, … for partition 0 and keeps the last number that was acknowledged.
func commitLoop(ctx context.Context, t *testing.T, addr, topic string, committed *atomic.Int64) {
	adm := kadm.NewClient(kgoClient(t, addr, kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })))
	for n := int64(1); ctx.Err() == nil; n++ {
		os := kadm.Offsets{}
		os.Add(kadm.Offset{Topic: topic, Partition: 0, At: n, LeaderEpoch: -1})
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		res, err := adm.CommitOffsets(attempt, "crash-group", os)
		cancel()
		if err == nil && res.Error() == nil {
			committed.Store(n)
		}
	}
}

func checkAcked(t *testing.T, addr, topic string, partitions int32, want map[uint64]acked) {
	t.Helper()
	ends, err := kadmClient(t, addr).ListEndOffsets(limited(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	seen := map[uint64]acked{}
	for p := range partitions {
		end, _ := ends.Lookup(topic, p)
		total += int(end.Offset)
		last := map[uint64]uint64{} // producer → its last number on this partition
		for _, r := range (franz{}).From(t, addr, topic, p, 0, int(end.Offset)) {
			value := binary.BigEndian.Uint64(r.Value)
			if at, dup := seen[value]; dup {
				t.Fatalf("value %x stands at %v and at %d/%d", value, at, p, r.Offset)
			}
			seen[value] = acked{p, r.Offset}
			w, n := value>>40, value&(1<<40-1)
			if prev, ok := last[w]; ok && n <= prev {
				t.Fatalf("partition %d: producer %d's record %d comes after %d", p, w, n, prev)
			}
			last[w] = n
		}
	}
	for value, at := range want {
		if seen[value] != at {
			t.Fatalf("value %x was acknowledged at %v and is at %v", value, at, seen[value])
		}
	}
	if total < len(want) {
		t.Fatalf("%d records on the log, %d acknowledged", total, len(want))
	}
}

// A topic that exists is never reported unknown while or after the broker restarts.
func TestTopicsSurviveEveryKill(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	cl := kgoClient(t, b.Kafka)
	for i := range 10 {
		topic := topicName("kept", fmt.Sprint(i))
		franz{}.CreateTopic(t, b.Kafka, topic, 2)
		b.Kill()
		b.Restart()
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(limited(t), cl)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("topic %s after kill -9: %v, %d partitions", topic, err, len(resp.Topics[0].Partitions))
		}
	}
}
