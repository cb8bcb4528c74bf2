package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newBenchCommand(s *session) *cobra.Command {
	return newFamily("bench", "Measure a broker", newBenchProduceCommand(s), newBenchConsumeCommand(s), newBenchEndToEndCommand(s))
}

// benchOptions are shared by the three measurements; each adds those it knows.
type benchOptions struct {
	topic      string
	records    int64
	size       int
	partitions int32
	codec      string
	acks       string
	rate       float64
	linger     time.Duration
	keep       bool
}

// benchTopic is where records go without -t.
const benchTopic = "perigee-bench"

func (o *benchOptions) addProduceFlags(c *cobra.Command, records int64) {
	f := c.Flags()
	f.StringVarP(&o.topic, "topic", "t", benchTopic, "topic; created when it does not exist, and then deleted in the end")
	f.Int64VarP(&o.records, "num", "n", records, "number of records")
	f.BoolVar(&o.keep, "keep", false, "do not delete a topic that was created")
	f.IntVar(&o.size, "size", 1024, "bytes of a value")
	f.Int32VarP(&o.partitions, "partitions", "p", 1, "partitions of a topic that is created")
	f.StringVarP(&o.codec, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVar(&o.acks, "acks", "all", "0, 1 or all")
}

// benchReport is the result of any of them; latencies are in milliseconds.
type benchReport struct {
	Records       int64            `json:"records"`
	Bytes         int64            `json:"bytes"` // of values
	Seconds       float64          `json:"seconds"`
	RecordsPerSec float64          `json:"records_per_second"`
	MiBPerSec     float64          `json:"mib_per_second"`
	Failed        int64            `json:"failed"`
	Latency       *benchPercentile `json:"latency_ms,omitempty"`
}

type benchPercentile struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

// latencies collects durations. From a microsecond to a minute, three digits.
type latencies struct {
	mu struct { // records are acknowledged on the client's goroutines
		sync.Mutex
		histogram *hdrhistogram.Histogram
	}
}

const (
	latencyMin = time.Microsecond
	latencyMax = time.Minute
)

func newLatencies() *latencies {
	l := new(latencies)
	l.mu.histogram = hdrhistogram.New(int64(latencyMin), int64(latencyMax), 3)
	return l
}

func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Clamped to the histogram's range, which makes its error impossible.
	_ = l.mu.histogram.RecordValue(int64(min(max(d, latencyMin), latencyMax)))
}

func (l *latencies) percentiles() *benchPercentile {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.mu.histogram
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return &benchPercentile{h.Mean() / 1e6, at(50), at(90), at(99), at(99.9), float64(h.Max()) / 1e6}
}

func newBenchReport(records, bytes, failed int64, took time.Duration, l *latencies) benchReport {
	seconds := took.Seconds()
	r := benchReport{Records: records, Bytes: bytes, Failed: failed, Seconds: seconds}
	if seconds > 0 {
		r.RecordsPerSec, r.MiBPerSec = float64(records)/seconds, float64(bytes)/seconds/(1<<20)
	}
	if l != nil {
		r.Latency = l.percentiles()
	}
	return r
}

func (r benchReport) print(out *output) error {
	t := table{header: []string{"RECORDS", "FAILED", "SECONDS", "RECORDS/S", "MIB/S"}}
	row := []any{r.Records, r.Failed, fmt.Sprintf("%.3f", r.Seconds), fmt.Sprintf("%.0f", r.RecordsPerSec), fmt.Sprintf("%.2f", r.MiBPerSec)}
	if l := r.Latency; l != nil {
		t.header = append(t.header, "MEAN-MS", "P50", "P90", "P99", "P99.9", "MAX")
		for _, ms := range []float64{l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max} {
			row = append(row, fmt.Sprintf("%.3f", ms))
		}
	}
	t.add(row...)
	return out.print(r, t)
}

// withBenchTopic makes sure that the topic is there, and deletes it again if it was not.
func withBenchTopic(ctx context.Context, client *kgo.Client, o *benchOptions, measure func() error) error {
	admin := kadm.NewClient(client)
	_, err := admin.CreateTopic(ctx, o.partitions, -1, nil, o.topic)
	created := err == nil
	if err != nil && !isCode(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", o.topic, err)
	}
	err = measure()
	if created && !o.keep {
		if _, deleteErr := admin.DeleteTopic(context.WithoutCancel(ctx), o.topic); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("delete topic %s: %w", o.topic, deleteErr))
		}
	}
	return err
}

// benchValue is random words, so that a codec has something to do and something
// left over.
func benchValue(random *rand.Rand, size int) []byte {
	const letters = "perigee measures brokers with words that repeat sometimes "
	value := make([]byte, size)
	for i := range value {
		value[i] = letters[random.IntN(len(letters))]
	}
	return value
}

// ---- produce

func newBenchProduceCommand(s *session) *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:     "produce",
		Short:   "Write records as fast as they go, or at a rate; latency is from write to acknowledgement",
		Example: "  perigee bench produce -n 1000000 --size 1024 -p 6\n  perigee bench produce -n 10000 --rate 1000 --linger 0s",
		Args:    arguments(cobra.NoArgs),
	}
	o.addProduceFlags(c, 100_000)
	c.Flags().Float64Var(&o.rate, "rate", 0, "records per second, 0 for no limit")
	c.Flags().DurationVar(&o.linger, "linger", 5*time.Millisecond, "how long a batch may wait to fill")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		client, err := s.open(c.Context(), o.produceOptions()...)
		if err != nil {
			return err
		}
		defer client.Close()
		return withBenchTopic(c.Context(), client, &o, func() error {
			return benchProduce(c.Context(), client, out, &o)
		})
	}
	c.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	return c
}

func (o *benchOptions) check() error {
	produce := produceOptions{acks: o.acks, codec: o.codec, partition: -1}
	if _, err := produce.clientOptions(); err != nil {
		return err
	}
	if o.records <= 0 || o.size < 0 || o.rate < 0 {
		return usagef("-n must be above 0, --size and --rate not below")
	}
	return nil
}

// produceOptions are those of the produce verb, checked before.
func (o *benchOptions) produceOptions() []kgo.Opt {
	produce := produceOptions{acks: o.acks, codec: o.codec, partition: -1}
	opts, _ := produce.clientOptions()
	return append(opts, kgo.ProducerLinger(o.linger), kgo.RecordPartitioner(kgo.StickyPartitioner()))
}

func benchProduce(ctx context.Context, client *kgo.Client, out *output, o *benchOptions) error {
	bar := newProgress(out.errors, o.records, "produce", "records")
	random := rand.New(rand.NewPCG(1, 2))
	values := make([][]byte, 64)
	for i := range values {
		values[i] = benchValue(random, o.size)
	}
	l := newLatencies()
	var written, failed atomic.Int64
	var firstFailure atomic.Pointer[error]
	start := time.Now()
	for i := range o.records {
		if ctx.Err() != nil || o.rate > 0 && !sleepUntil(ctx, start.Add(time.Duration(float64(i)/o.rate*float64(time.Second)))) {
			break
		}
		sent := time.Now()
		client.Produce(ctx, &kgo.Record{Topic: o.topic, Value: values[i%int64(len(values))]}, func(_ *kgo.Record, err error) {
			if errors.Is(err, context.Canceled) {
				return // a signal ends the measurement, what was not sent did not fail
			}
			bar.add(1)
			if err != nil {
				failed.Add(1)
				firstFailure.CompareAndSwap(nil, &err)
				return
			}
			written.Add(1)
			l.record(time.Since(sent))
		})
	}
	flushErr := client.Flush(ctx)
	took := time.Since(start)
	bar.done()
	if err := newBenchReport(written.Load(), written.Load()*int64(o.size), failed.Load(), took, l).print(out); err != nil {
		return err
	}
	if first := firstFailure.Load(); first != nil {
		return fmt.Errorf("%d records failed, the first: %w", failed.Load(), *first)
	}
	if ctx.Err() != nil {
		return nil
	}
	return flushErr
}

// sleepUntil says whether the time was reached before the context ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// ---- consume

func newBenchConsumeCommand(s *session) *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "consume",
		Short: "Read a topic from its start, without printing",
		Args:  arguments(cobra.NoArgs),
	}
	c.Flags().StringVarP(&o.topic, "topic", "t", benchTopic, "topic, such as bench produce --keep leaves")
	c.Flags().Int64VarP(&o.records, "num", "n", 0, "number of records, 0 for what is there")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		client, err := s.open(c.Context(), kgo.ConsumeTopics(o.topic), kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(16<<20), kgo.KeepControlRecords())
		if err != nil {
			return err
		}
		defer client.Close()
		return benchConsume(c.Context(), client, out, &o)
	}
	return c
}

func benchConsume(ctx context.Context, client *kgo.Client, out *output, o *benchOptions) error {
	left, there, err := recordsIn(ctx, kadm.NewClient(client), o.topic)
	if err != nil {
		return err
	}
	target := there
	if o.records > 0 {
		target = o.records
	}
	bar := newProgress(out.errors, target, "consume", "records")
	var records, bytes int64
	start := time.Now()
	for ctx.Err() == nil && records < target && (o.records > 0 || len(left) > 0) {
		fetches := client.PollRecords(ctx, pollRecordsMax)
		if err := fetches.Err0(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("consume: %w", err)
		}
		for r := range fetches.RecordsAll() {
			records++
			bytes += int64(len(r.Value))
			if tp := (topicPartition{r.Topic, r.Partition}); left[tp] <= r.Offset+1 {
				delete(left, tp)
			}
		}
		bar.add(int64(fetches.NumRecords()))
	}
	took := time.Since(start)
	bar.done()
	return newBenchReport(records, bytes, 0, took, nil).print(out)
}

// recordsIn returns the ends of the partitions that hold something, and how many
// offsets they have.
func recordsIn(ctx context.Context, admin *kadm.Client, topic string) (map[topicPartition]int64, int64, error) {
	listed, err := listBounds(ctx, admin, []string{topic})
	if err == nil {
		err = listed.topicError(topic)
	}
	if err != nil {
		return nil, 0, err
	}
	left, total := map[topicPartition]int64{}, int64(0)
	for p := range listed.end[topic] {
		b := listed.of(topic, p)
		if b.err != nil {
			return nil, 0, fmt.Errorf("%s/%d: %w", topic, p, b.err)
		}
		if b.end > b.start {
			left[topicPartition{topic, p}] = b.end
			total += b.end - b.start
		}
	}
	return left, total, nil
}

// ---- end to end

func newBenchEndToEndCommand(s *session) *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "e2e",
		Short: "Write one record, wait until a consumer has it, again: latency from write to read",
		Args:  arguments(cobra.NoArgs),
	}
	o.addProduceFlags(c, 1000)
	c.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		producer, err := s.open(c.Context(), o.produceOptions()...)
		if err != nil {
			return err
		}
		defer producer.Close()
		return withBenchTopic(c.Context(), producer, &o, func() error {
			consumer, err := s.open(c.Context(), kgo.ConsumeTopics(o.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(5*time.Second))
			if err != nil {
				return err
			}
			defer consumer.Close()
			return benchEndToEnd(c.Context(), producer, consumer, out, &o)
		})
	}
	return c
}

// warmUpPause is how long the warm-up waits for the consumer to have joined in.
const warmUpPause = 250 * time.Millisecond

func benchEndToEnd(ctx context.Context, producer, consumer *kgo.Client, out *output, o *benchOptions) error {
	run := fmt.Sprintf("%016x", rand.Uint64()) // tells our records from others'
	value := benchValue(rand.New(rand.NewPCG(1, 2)), o.size)
	roundTrip := func(ctx context.Context, number int64) error {
		key := fmt.Sprintf("%s-%d", run, number)
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: o.topic, Key: []byte(key), Value: value}).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return awaitKey(ctx, consumer, key)
	}
	// The consumer starts at the end, which it looks up in its own time: records
	// before that are never seen, so the first are sent until one is.
	for number := int64(-1); ; number-- {
		warmUp, cancel := context.WithTimeout(ctx, warmUpPause)
		err := roundTrip(warmUp, number)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	bar := newProgress(out.errors, o.records, "e2e", "records")
	l := newLatencies()
	start := time.Now()
	done := int64(0)
	for ; done < o.records && ctx.Err() == nil; done++ {
		sent := time.Now()
		if err := roundTrip(ctx, done); ctx.Err() != nil {
			break
		} else if err != nil {
			return err
		}
		l.record(time.Since(sent))
		bar.add(1)
	}
	took := time.Since(start)
	bar.done()
	return newBenchReport(done, done*int64(o.size), 0, took, l).print(out)
}

// awaitKey polls until the record with the key has come.
func awaitKey(ctx context.Context, consumer *kgo.Client, key string) error {
	for {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		for r := range fetches.RecordsAll() {
			if string(r.Key) == key {
				return nil
			}
		}
	}
}
