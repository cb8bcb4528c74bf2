package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeOptions struct {
	format                    string
	offset                    string
	limit                     int
	exitAtEnd                 bool
	group                     string
	partitions                []int32
	regex                     bool
	committed, control, onlyM bool
	filters                   []string
}

func newConsumeCommand(s *session) *cobra.Command {
	var o consumeOptions
	c := &cobra.Command{
		Use:   "consume TOPIC...",
		Short: "Print the records of topics",
		Long: "Print the records of topics, and wait for more unless -e or -n ends it. By default a\n" +
			"line per value.\n\n" + formatHelp + "\n\n" + filterHelp,
		Example: "  perigee consume orders -e\n" +
			"  perigee consume orders -o -10 -e -f '%p:%o %k=%v\\n'\n" +
			"  perigee consume orders -o @-1h -f json -F value.status=failed\n" +
			"  perigee consume orders -g billing -n 100",
		Args: arguments(cobra.MinimumNArgs(1)),
	}
	f := c.Flags()
	f.StringVarP(&o.format, "format", "f", "text", "text, json or a format")
	f.StringVarP(&o.offset, "offset", "o", "start", "where to begin: start, end, N, +N after the start, -N before the end, @TIME; a group begins there only without a committed offset")
	f.IntVarP(&o.limit, "num", "n", 0, "stop after that many printed records")
	f.BoolVarP(&o.exitAtEnd, "exit", "e", false, "stop at what is the end now")
	f.StringVarP(&o.group, "group", "g", "", "consume as a member of this group and commit what was printed")
	f.Int32SliceVarP(&o.partitions, "partitions", "p", nil, "only these partitions")
	f.BoolVarP(&o.regex, "regex", "r", false, "topics are regular expressions")
	f.BoolVar(&o.committed, "read-committed", false, "only records of committed transactions")
	f.BoolVar(&o.control, "print-control-records", false, "transaction markers too")
	f.BoolVar(&o.onlyM, "meta-only", false, "topic, partition, offset and timestamp, without key, value and headers")
	f.StringArrayVarP(&o.filters, "filter", "F", nil, "print only records this holds for, may be repeated")
	c.RunE = func(c *cobra.Command, args []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		printer, err := newPrinter(out, &o)
		if err != nil {
			return err
		}
		if o.group != "" && len(o.partitions) > 0 {
			return usagef("-g and -p exclude each other: a group gets its partitions assigned")
		}
		start, err := parseStart(o.offset, time.Now())
		if err != nil {
			return err
		}
		consumption := &consumption{session: s, options: &o, out: out, printer: printer, start: start}
		if err := consumption.run(c.Context(), args); err != nil {
			return err
		}
		return out.end()
	}
	return c
}

// ---- where to begin

// startSpec is -o, read.
type startSpec struct {
	base   byte // 's' start, 'e' end, 'n' an offset, '@' a time
	number int64
}

func parseStart(s string, now time.Time) (startSpec, error) {
	switch s {
	case "start", "beginning", "earliest":
		return startSpec{base: 's'}, nil
	case "end", "latest":
		return startSpec{base: 'e'}, nil
	}
	if when, ok := strings.CutPrefix(s, "@"); ok {
		t, err := parseTime(when, now)
		if err != nil {
			return startSpec{}, usagef("-o: %w", err)
		}
		return startSpec{'@', t.UnixMilli()}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return startSpec{}, usagef("-o %s: want start, end, N, +N, -N or @TIME", s)
	}
	switch s[0] {
	case '+':
		return startSpec{'s', n}, nil
	case '-':
		return startSpec{'e', n}, nil
	}
	return startSpec{'n', n}, nil
}

// forGroup is the same for the client library, which applies it when a group has
// no offset.
func (s startSpec) forGroup() kgo.Offset {
	switch s.base {
	case 's':
		return kgo.NewOffset().AtStart().Relative(s.number)
	case 'e':
		return kgo.NewOffset().AtEnd().Relative(s.number)
	case '@':
		return kgo.NewOffset().AfterMilli(s.number)
	}
	return kgo.NewOffset().At(s.number)
}

// atTime asks for the offsets of the time, if it is one.
func (s startSpec) atTime(ctx context.Context, admin *kadm.Client, topics []string) (kadm.ListedOffsets, error) {
	if s.base != '@' {
		return nil, nil
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, s.number, topics...)
	return listed, wrap("list offsets by time", err)
}

// in resolves it against a partition. at holds the offsets of the time, for '@'.
func (s startSpec) in(tp topicPartition, b bounds, at kadm.ListedOffsets) int64 {
	offset := s.number
	switch s.base {
	case 's':
		offset += b.start
	case 'e':
		offset += b.end
	case '@':
		offset = b.end // when nothing is that young
		if o, ok := at.Lookup(tp.topic, tp.partition); ok && o.Err == nil && o.Offset >= 0 {
			offset = o.Offset
		}
	}
	return min(max(offset, b.start), b.end)
}

// ---- printing

// printer writes the records that pass the filters.
type printer struct {
	w       *bufio.Writer
	json    *json.Encoder // nil: pieces
	pieces  []piece
	meta    bool
	filters []*filter
	line    []byte
}

func newPrinter(out *output, o *consumeOptions) (*printer, error) {
	p := &printer{w: bufio.NewWriterSize(out.w, 64<<10), meta: o.onlyM}
	format := o.format
	switch {
	case format == "json":
		p.json = json.NewEncoder(p.w)
		p.json.SetEscapeHTML(false)
	case format == "text" && o.onlyM:
		format = `%t %p %o %T\n`
	case format == "text":
		format = `%v\n`
	case !strings.ContainsAny(format, `%\`):
		return nil, usagef("--format %s: want text, json or a format with %%v", format)
	}
	if p.json == nil {
		var err error
		if p.pieces, err = parseFormat(format, consumeVerbs); err != nil {
			return nil, usagef("--format: %w", err)
		}
	}
	for _, text := range o.filters {
		f, err := parseFilter(text)
		if err != nil {
			return nil, usagef("-F %w", err)
		}
		p.filters = append(p.filters, f)
	}
	return p, nil
}

// print says whether the record was printed.
func (p *printer) print(r *kgo.Record) (bool, error) {
	for _, f := range p.filters {
		if !f.passes(r) {
			return false, nil
		}
	}
	switch {
	case p.json != nil && p.meta:
		return true, p.json.Encode(toMeta(r))
	case p.json != nil:
		return true, p.json.Encode(toJSON(r))
	}
	p.line = appendRecord(p.line[:0], p.pieces, r)
	_, err := p.w.Write(p.line)
	return true, err
}

// ---- consuming

// consumption is one run of consume.
type consumption struct {
	session *session
	options *consumeOptions
	out     *output
	printer *printer
	start   startSpec
	client  *kgo.Client
	// admin asks questions. It has connections of its own: on the consumer's they
	// would wait behind a fetch that waits for records.
	admin   *kgo.Client
	printed int
	ends    *ends // nil without -e
}

func (c *consumption) run(ctx context.Context, topics []string) error {
	var err error
	if c.admin, err = c.session.open(ctx); err != nil {
		return err
	}
	defer c.admin.Close()
	if c.options.group != "" {
		err = c.openGroup(ctx, topics)
	} else {
		err = c.openDirect(ctx, topics)
	}
	if err != nil || c.client == nil {
		return err
	}
	defer c.client.Close()
	err = c.loop(ctx)
	if flushErr := c.printer.w.Flush(); flushErr != nil {
		return errors.Join(err, fmt.Errorf("write records: %w", flushErr))
	}
	if c.options.group != "" {
		// What was printed is committed also when the user has had enough.
		if commitErr := c.client.CommitMarkedOffsets(context.WithoutCancel(ctx)); commitErr != nil {
			return errors.Join(err, fmt.Errorf("commit offsets: %w", commitErr))
		}
	}
	return err
}

func (c *consumption) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{kgo.KeepControlRecords()} // markers move the position, printed or not
	if c.options.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

// openDirect resolves -o for every partition itself, so that where it begins and, with
// -e, ends is fixed before the first record.
func (c *consumption) openDirect(ctx context.Context, topics []string) error {
	positions, ends, err := c.resolve(ctx, topics)
	if err != nil {
		return err
	}
	assigned := map[string]map[int32]kgo.Offset{}
	for tp, at := range positions {
		if assigned[tp.topic] == nil {
			assigned[tp.topic] = map[int32]kgo.Offset{}
		}
		assigned[tp.topic][tp.partition] = kgo.NewOffset().At(at)
	}
	if c.options.exitAtEnd {
		c.ends = newEnds(c.options.committed, ends)
		for tp, at := range positions {
			c.ends.reach(tp, at)
		}
		if c.ends.all() {
			return nil // nothing to read
		}
	}
	if len(assigned) == 0 {
		return nil
	}
	c.client, err = c.session.open(ctx, append(c.clientOptions(), kgo.ConsumePartitions(assigned))...)
	return err
}

// resolve returns where each chosen partition begins and ends.
func (c *consumption) resolve(ctx context.Context, names []string) (positions, ends map[topicPartition]int64, err error) {
	admin := kadm.NewClient(c.admin)
	topics, err := findTopics(ctx, admin, c.out, names, c.options.regex, !c.options.regex)
	if err != nil || len(topics) == 0 {
		return nil, nil, err
	}
	listed, err := listBounds(ctx, admin, topicNames(topics))
	if err != nil {
		return nil, nil, err
	}
	at, err := c.start.atTime(ctx, admin, topicNames(topics))
	if err != nil {
		return nil, nil, err
	}
	positions, ends = map[topicPartition]int64{}, map[topicPartition]int64{}
	for _, d := range topics {
		chosen := c.options.partitions
		if len(chosen) == 0 {
			chosen = d.Partitions.Numbers()
		}
		for _, p := range chosen {
			tp := topicPartition{d.Topic, p}
			b := listed.of(d.Topic, p)
			if b.err != nil {
				c.out.item(tp.String(), b.err)
				continue
			}
			if c.options.committed {
				b.end = b.stable
			}
			positions[tp], ends[tp] = c.start.in(tp, b, at), b.end
		}
	}
	return positions, ends, nil
}

func (c *consumption) openGroup(ctx context.Context, topics []string) error {
	opts := append(c.clientOptions(),
		kgo.ConsumerGroup(c.options.group), kgo.ConsumeTopics(topics...), kgo.ConsumeStartOffset(c.start.forGroup()),
		kgo.AutoCommitMarks())
	if c.options.regex {
		opts = append(opts, kgo.ConsumeRegex())
	}
	if c.options.exitAtEnd {
		positions, ends, err := c.resolve(ctx, topics)
		if err != nil {
			return err
		}
		c.ends = newEnds(c.options.committed, ends)
		c.ends.fallback = positions
		opts = append(opts, kgo.OnPartitionsAssigned(c.ends.assigned), kgo.AdjustFetchOffsetsFn(c.ends.fetched), kgo.OnPartitionsRevoked(c.ends.revoked), kgo.OnPartitionsLost(c.ends.revoked))
	}
	var err error
	c.client, err = c.session.open(ctx, opts...)
	return err
}

const (
	pollRecordsMax = 1000
	// idlePause is how long nothing has to come before -e asks the broker whether
	// there is anything to come.
	idlePause = 200 * time.Millisecond
)

// loop prints until the limit, the end, an error or a signal. A signal is no failure.
func (c *consumption) loop(ctx context.Context) error {
	for {
		fetches, err := c.poll(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		done, err := c.printAll(fetches)
		if err != nil || done {
			return err
		}
		if err := c.printer.w.Flush(); err != nil {
			return fmt.Errorf("write records: %w", err)
		}
		if c.ends == nil {
			continue
		}
		if fetches.NumRecords() == 0 {
			if err := c.ends.lookPast(ctx, c.admin); err != nil {
				return err
			}
		}
		if c.ends.all() {
			return nil
		}
	}
}

func (c *consumption) poll(ctx context.Context) (kgo.Fetches, error) {
	pollCtx, cancel := ctx, func() {}
	if c.ends != nil {
		pollCtx, cancel = context.WithTimeout(ctx, idlePause)
	}
	defer cancel()
	fetches := c.client.PollRecords(pollCtx, pollRecordsMax)
	var failure error
	fetches.EachError(func(topic string, partition int32, err error) {
		if pollCtx.Err() == nil {
			failure = errors.Join(failure, fmt.Errorf("%s/%d: %w", topic, partition, err))
		}
	})
	return fetches, failure
}

// printAll says whether -n has been reached.
func (c *consumption) printAll(fetches kgo.Fetches) (bool, error) {
	for r := range fetches.RecordsAll() {
		tp := topicPartition{r.Topic, r.Partition}
		if c.ends != nil && c.ends.beyond(tp, r.Offset) {
			continue
		}
		if !r.Attrs.IsControl() || c.options.control {
			printed, err := c.printer.print(r)
			if err != nil {
				return true, fmt.Errorf("write records: %w", err)
			}
			if printed {
				c.printed++
			}
		}
		if c.options.group != "" {
			c.client.MarkCommitRecords(r)
		}
		if c.ends != nil {
			c.ends.reach(tp, r.Offset+1)
		}
		if c.options.limit > 0 && c.printed >= c.options.limit {
			return true, nil
		}
	}
	return false, nil
}
