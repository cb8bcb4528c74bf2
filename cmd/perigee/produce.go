package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type produceOptions struct {
	format, keySeparator, output string
	key                          string
	headers                      []string
	codec, acks                  string
	partition                    int32
	tombstones                   bool
	txn                          string
	timeout                      time.Duration
}

func newProduceCommand(s *session) *cobra.Command {
	var o produceOptions
	c := &cobra.Command{
		Use:   "produce [TOPIC]",
		Short: "Write stdin to a topic, a record per line",
		Long: "Write stdin to a topic. By default every line is a value. Keys choose partitions as\n" +
			"Java's client does (murmur2).\n\n" + formatHelp + "\n" +
			"Reading knows %k %v %s %h %t %p %T %d. With -f json it reads what consume -f json\n" +
			"writes. TOPIC may be left out when the input names it.",
		Example: "  echo hello | perigee produce greetings\n" +
			"  perigee produce orders -K : < orders.txt\n" +
			"  perigee produce orders -f '%k %v\\n' -z zstd -H source=import < orders.txt\n" +
			"  perigee consume orders -f json -e | perigee produce copy -f json --txn copy-1",
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	f := c.Flags()
	f.StringVarP(&o.format, "format", "f", "text", "how stdin is read: text, json or a format")
	f.StringVarP(&o.keySeparator, "key-separator", "K", "", "text between key and value of a line")
	f.StringVarP(&o.key, "key", "k", "", "key for every record")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header as key=value for every record, may be repeated")
	f.StringVarP(&o.codec, "compression", "z", "", "none, gzip, snappy, lz4 or zstd (default snappy)")
	f.Int32VarP(&o.partition, "partition", "p", -1, "partition for every record")
	f.StringVar(&o.acks, "acks", "all", "0, 1 or all; other than all gives idempotence up")
	f.BoolVarP(&o.tombstones, "tombstone", "Z", false, "empty values are null")
	f.StringVar(&o.txn, "txn", "", "transactional id: all of stdin in one transaction")
	f.StringVarP(&o.output, "output", "o", "", "print a line per record written: json or a format")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "give up when the broker acknowledges nothing for that long")
	c.RunE = func(c *cobra.Command, args []string) error {
		p, err := newProduction(c, s, &o, strings.Join(args, ""))
		if err != nil {
			return err
		}
		defer p.close()
		if err := p.run(c.Context()); err != nil {
			return err
		}
		return p.out.end()
	}
	return c
}

// production is one run of produce.
type production struct {
	client  *kgo.Client
	limits  *batchLimits
	out     *output
	options *produceOptions
	read    recordReader
	topic   string
	keyed   bool // --key was given
	headers []kgo.RecordHeader
	report  []piece // of -o, unless it is json

	mu struct { // the client acknowledges on its own goroutines
		sync.Mutex
		failures int
		unacked  int
		report   error // the first that writing -o met
		over     bool  // the verb has said what became of all records
	}
	// silence fires when the broker has been silent for --timeout while records wait.
	// The library's own timeout counts from a record's timestamp, which may be old.
	silence *time.Timer
}

func newProduction(c *cobra.Command, s *session, o *produceOptions, topic string) (*production, error) {
	out, err := s.output(c)
	if err != nil {
		return nil, err
	}
	p := &production{out: out, options: o, topic: topic, keyed: c.Flags().Changed("key")}
	if p.read, err = newRecordReader(out.input, o.format, o.keySeparator); err != nil {
		return nil, err
	}
	if topic == "" && o.format != "json" && !strings.Contains(o.format, "%t") {
		return nil, usagef("a topic is needed: as an argument, as %%t in the format, or in the JSON")
	}
	for _, h := range o.headers {
		key, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, usagef("-H %s: want key=value", h)
		}
		p.headers = append(p.headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	if o.output != "" && o.output != "json" {
		if p.report, err = parseFormat(o.output, consumeVerbs); err != nil {
			return nil, usagef("-o: %w", err)
		}
	}
	opts, err := o.clientOptions()
	if err != nil {
		return nil, err
	}
	p.limits = newBatchLimits(s)
	p.client, err = s.open(c.Context(), append(opts, p.limits.option(c.Context()))...)
	return p, err
}

func (p *production) close() {
	p.client.Close()
	p.limits.close()
}

func (o *produceOptions) clientOptions() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.MaxBufferedBytes(64 << 20)}
	switch o.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks %s: want 0, 1 or all", o.acks)
	}
	if o.codec != "" {
		codec, err := parseCodec(o.codec)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.ProducerBatchCompression(codec))
	}
	if o.partition >= 0 || strings.Contains(o.format, "%p") {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if o.txn != "" {
		if o.acks != "all" && o.acks != "-1" {
			return nil, usagef("--txn needs --acks all")
		}
		opts = append(opts, kgo.TransactionalID(o.txn))
	}
	return opts, nil
}

func parseCodec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.NoCompression(), usagef("-z %s: want none, gzip, snappy, lz4 or zstd", name)
}

func (p *production) run(ctx context.Context) error {
	if p.options.txn == "" {
		return p.writeAll(ctx)
	}
	if err := p.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	err := p.writeAll(ctx)
	commit := kgo.TransactionEndTry(err == nil && !p.out.failed)
	// The end must be tried also when ctx is over: the transaction would stay open.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.timeout)
	defer cancel()
	if endErr := p.client.EndTransaction(end, commit); endErr != nil {
		return errors.Join(err, fmt.Errorf("end transaction: %w", endErr))
	}
	if !commit {
		return errors.Join(err, errors.New("the transaction was aborted, nothing was written"))
	}
	return err
}

// recordRead is what reading stdin came to: a record, or why there is none.
type recordRead struct {
	record *kgo.Record
	err    error
}

// readAhead is how many records are read before the client takes them.
const readAhead = 64

// records reads stdin until an error, io.EOF or ctx ends it. It has a goroutine of its
// own, which stays behind in a read that nothing ends: a signal and a broker that is
// silent must not wait for the next line.
func (p *production) records(ctx context.Context) <-chan recordRead {
	all := make(chan recordRead, readAhead)
	go func() {
		for {
			r, err := p.read()
			select {
			case all <- recordRead{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return all
}

// writeAll sends everything stdin has and waits for the acknowledgements. Records that
// fail are reported one by one, and fail the verb in the end.
func (p *production) writeAll(ctx context.Context) error {
	bar := newProgress(p.out.errors, -1, "produce", "records")
	if isTerminal(p.out.input) {
		bar = progress{} // a person types: no bar between the lines
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.silence = time.AfterFunc(p.options.timeout, func() {
		cancel(fmt.Errorf("the broker acknowledged nothing for %s", p.options.timeout))
	})
	p.silence.Stop() // until there is a record
	readErr := p.send(ctx, bar)
	err := p.client.Flush(ctx)
	bar.done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.over = true
	p.out.failed = p.out.failed || p.mu.failures > 0
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w; %d records are not acknowledged", cause, p.mu.unacked+p.mu.failures)
	}
	return errors.Join(readErr, err, wrap("write report", p.mu.report))
}

// send hands the client what stdin has, until that or ctx ends.
func (p *production) send(ctx context.Context, bar progress) error {
	records := p.records(ctx)
	for number := 1; ctx.Err() == nil; number++ {
		var next recordRead
		select {
		case next = <-records:
		case <-ctx.Done():
			return nil
		}
		if errors.Is(next.err, io.EOF) {
			return nil
		}
		if next.err != nil {
			return fmt.Errorf("read record %d: %w", number, next.err)
		}
		p.complete(next.record)
		p.awaitOne()
		p.client.Produce(ctx, next.record, p.acknowledged(number, bar))
	}
	return nil
}

// awaitOne counts a record whose acknowledgement is to come.
func (p *production) awaitOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.unacked++; p.mu.unacked == 1 {
		p.silence.Reset(p.options.timeout)
	}
}

// heardOfOneLocked is its counterpart; p.mu is held.
func (p *production) heardOfOneLocked() {
	if p.mu.unacked--; p.mu.unacked == 0 {
		p.silence.Stop()
		return
	}
	p.silence.Reset(p.options.timeout)
}

// complete sets what the command line says about every record.
func (p *production) complete(r *kgo.Record) {
	o := p.options
	if p.topic != "" {
		r.Topic = p.topic
	}
	if p.keyed {
		r.Key = []byte(o.key)
	}
	if o.partition >= 0 {
		r.Partition = o.partition
	}
	if o.tombstones && len(r.Value) == 0 {
		r.Value = nil
	}
	r.Headers = append(r.Headers, p.headers...)
}

func (p *production) acknowledged(number int, bar progress) func(*kgo.Record, error) {
	return func(r *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.over {
			return // the client is closed and gives up what is in flight
		}
		p.heardOfOneLocked()
		bar.add(1)
		if err == nil {
			p.reportLocked(r)
			return
		}
		p.mu.failures++
		if errors.Is(err, kerr.MessageTooLarge) {
			err = fmt.Errorf("%w; max.message.bytes of the topic is %d", err, p.limits.of(context.Background(), r.Topic))
		}
		if !errors.Is(err, context.Canceled) { // then the verb says why, once
			fmt.Fprintf(p.out.errors, "perigee: record %d: %s\n", number, oneLine(err))
		}
	}
}

// reportLocked prints a record that is written, as -o says; p.mu is held.
func (p *production) reportLocked(r *kgo.Record) {
	var err error
	switch {
	case p.report != nil:
		_, err = p.out.w.Write(appendRecord(nil, p.report, r))
	case p.options.output == "json":
		err = json.NewEncoder(p.out.w).Encode(toMeta(r))
	}
	if p.mu.report == nil {
		p.mu.report = err
	}
}
