package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// shownText is bytes in JSON: as text if they are, else in base64.
type shownText struct {
	Text   *string `json:"text,omitempty"`
	Base64 string  `json:"base64,omitempty"`
}

func shown(b []byte) *shownText {
	if b == nil {
		return nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &shownText{Text: &s}
	}
	return &shownText{Base64: base64.StdEncoding.EncodeToString(b)}
}

type shownHeader struct {
	Key   string     `json:"key"`
	Value *shownText `json:"value"`
}

// shownDead is a dead record with where it came from.
type shownDead struct {
	Partition  int32         `json:"partition"`
	Offset     wide          `json:"offset"`
	Timestamp  wide          `json:"timestamp"`
	Source     string        `json:"source_topic,omitempty"`
	SourcePart int32         `json:"source_partition"`
	SourceAt   wide          `json:"source_offset"`
	Group      string        `json:"group,omitempty"`
	Deliveries int           `json:"deliveries"`
	Reason     string        `json:"reason,omitempty"`
	Replays    int           `json:"replays"`
	Key        *shownText    `json:"key"`
	Value      *shownText    `json:"value"`
	Headers    []shownHeader `json:"headers"` // the record's own
}

// Limits of one listing.
const (
	listDefault = 100
	listMost    = 1000
)

// list serves GET /v1/dlq/{topic}?partition=N&offset=N&limit=N: records from an
// offset on, of one partition or of all.
func (d *DeadLetters) list(w http.ResponseWriter, r *http.Request) {
	c := d.Coordinator()
	if c == nil {
		refuse(w, http.StatusServiceUnavailable, errors.New("the broker is starting"))
		return
	}
	t, ok := c.Catalog().Topic(r.PathValue("topic"))
	if !ok || t.Internal {
		refuse(w, http.StatusNotFound, fmt.Errorf("no topic %s", r.PathValue("topic")))
		return
	}
	partition, err1 := number(r, "partition", -1, int64(t.Partitions)-1)
	offset, err2 := number(r, "offset", 0, 1<<62)
	limit, err3 := number(r, "limit", listDefault, listMost)
	if err := errors.Join(err1, err2, err3); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	log := &insideLog{c, t}
	records := []shownDead{}
	for _, s := range log.spans(nil) {
		if partition >= 0 && int64(s.Partition) != partition {
			continue
		}
		s.From = max(s.From, model.Offset(offset))
		for s.From < s.To && len(records) < int(limit) {
			dead, next, err := log.Read(r.Context(), s.Partition, s.From)
			if err != nil {
				refuse(w, statusOf(err), err)
				return
			}
			for _, one := range dead[:min(len(dead), int(limit)-len(records))] {
				records = append(records, show(one))
			}
			if next <= s.From {
				break
			}
			s.From = next
		}
	}
	answer(w, http.StatusOK, struct {
		Records []shownDead `json:"records"`
	}{records})
}

// number reads a query parameter of 0 to most.
func number(r *http.Request, name string, absent, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s is a number of 0 to %d", name, most)
	}
	return n, nil
}

func show(d deadletter.Dead) shownDead {
	out := shownDead{Partition: d.Partition, Offset: wide(d.Offset), Timestamp: wide(d.Timestamp), SourcePart: -1, SourceAt: -1,
		Replays: deadletter.Replays(d.Headers), Key: shown(d.Key), Value: shown(d.Value), Headers: []shownHeader{}}
	if p, ok := deadletter.Find(d.Headers); ok {
		out.Source, out.SourcePart, out.SourceAt = p.Topic, p.Partition, wide(p.Offset)
		out.Group, out.Deliveries, out.Reason = p.Group, p.Deliveries, p.Reason
	}
	for _, h := range d.Headers {
		if !deadletter.Ours(h.Key) && !deadletter.Foreign(h.Key) && h.Key != deadletter.HeaderReplays {
			out.Headers = append(out.Headers, shownHeader{h.Key, shown(h.Value)})
		}
	}
	return out
}

// redriveRequest is the plan of a redrive. Without execute it is a dry run.
type redriveRequest struct {
	Reason     string            `json:"reason"` // regular expressions
	Key        string            `json:"key"`
	Headers    map[string]string `json:"headers"` // and of values, by header
	Since      *wide             `json:"since"`   // when the record died, ms
	Until      *wide             `json:"until"`
	To         string            `json:"to"`
	Group      string            `json:"group"`
	Max        int               `json:"max"`
	Rate       float64           `json:"rate"`
	MaxReplays int               `json:"max_replays"`
	Execute    bool              `json:"execute"`
}

func (d *DeadLetters) redrive(w http.ResponseWriter, r *http.Request) {
	var in redriveRequest
	c, ok := d.begin(w, r, &in)
	if !ok {
		return
	}
	t, found := c.Catalog().Topic(r.PathValue("topic"))
	if !found || t.Internal {
		refuse(w, http.StatusNotFound, fmt.Errorf("no topic %s", r.PathValue("topic")))
		return
	}
	keep, err := in.keep()
	if err == nil && (in.Max < 0 || in.Rate < 0 || in.MaxReplays < 0) {
		err = errors.New("max, rate and max_replays are not negative")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	plan := deadletter.Redrive{Topic: t.Name, Group: in.Group, To: in.To, Keep: keep, Max: in.Max, Rate: in.Rate,
		MaxReplays: in.MaxReplays, Execute: in.Execute, Pause: pause}
	if plan.Group == "" {
		plan.Group = deadletter.ProgressGroup(t.Name, in.conditions()...)
	}
	log := &insideLog{c, t}
	progress, err := log.progress(r.Context(), plan.Group)
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	report, err := plan.Run(r.Context(), log, log.spans(progress))
	if in.Execute && d.Redriven != nil {
		d.Redriven(t.Name, report.Fates[deadletter.Redriven])
	}
	result := struct {
		*deadletter.Report
		Group    string `json:"group"`
		Executed bool   `json:"executed"`
		Error    string `json:"error,omitempty"`
	}{Report: report, Group: plan.Group, Executed: in.Execute}
	status := http.StatusOK
	if err != nil {
		result.Error, status = err.Error(), statusOf(err)
	}
	answer(w, status, result)
}

// keep puts the conditions together.
func (in *redriveRequest) keep() (func(deadletter.Dead) bool, error) {
	reason, err1 := regexp.Compile(in.Reason)
	key, err2 := regexp.Compile(in.Key)
	err := errors.Join(err1, err2)
	headers := map[string]*regexp.Regexp{}
	for name, pattern := range in.Headers {
		re, problem := regexp.Compile(pattern)
		headers[name], err = re, errors.Join(err, problem)
	}
	if err != nil {
		return nil, err
	}
	return func(d deadletter.Dead) bool {
		p, _ := deadletter.Find(d.Headers)
		for name, re := range headers {
			if !slices.ContainsFunc(d.Headers, func(h batch.RecordHeader) bool { return h.Key == name && re.Match(h.Value) }) {
				return false
			}
		}
		return reason.MatchString(p.Reason) && key.Match(d.Key) &&
			(in.Since == nil || d.Timestamp >= model.Timestamp(*in.Since)) &&
			(in.Until == nil || d.Timestamp < model.Timestamp(*in.Until))
	}, nil
}

// conditions are what keep asks for, for the name of the group.
func (in *redriveRequest) conditions() []string {
	all := []string{in.Reason, in.Key}
	for _, w := range []*wide{in.Since, in.Until} {
		if w != nil {
			all = append(all, strconv.FormatInt(int64(*w), 10))
		} else {
			all = append(all, "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		all = append(all, name+"="+in.Headers[name])
	}
	return all
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// insideLog is a deadletter.Log from inside the broker.
type insideLog struct {
	c *coordinator.Coordinator
	t *catalog.Topic
}

// spans are the partitions from their start, or from a progress, to what is
// committed now.
func (l *insideLog) spans(progress map[int32]model.Offset) []deadletter.Span {
	var spans []deadletter.Span
	for n := range l.t.Partitions {
		p, err := l.c.Partition(l.t, n)
		if err != nil {
			continue // deleted meanwhile
		}
		b := p.Bounds()
		spans = append(spans, deadletter.Span{Partition: n, From: max(b.Start, progress[n]), To: b.Stable})
	}
	return spans
}

func (l *insideLog) progress(ctx context.Context, id string) (map[int32]model.Offset, error) {
	var asked []group.PartitionOf
	for n := range l.t.Partitions {
		asked = append(asked, group.PartitionOf{Topic: l.t.Name, TopicID: l.t.ID, Partition: n})
	}
	got, err := l.c.FetchOffsets(group.FetchOffsets{Group: id, Partitions: asked}).Wait(ctx)
	if err != nil {
		return nil, err
	}
	progress := map[int32]model.Offset{}
	for _, o := range got {
		if o.Offset >= 0 {
			progress[o.Partition] = o.Offset
		}
	}
	return progress, nil
}

// readBytes is how much of a dead-letter topic is dealt with at a time.
const readBytes = 1 << 20

// Read implements deadletter.Log.
func (l *insideLog) Read(_ context.Context, partition int32, from model.Offset) ([]deadletter.Dead, model.Offset, error) {
	p, err := l.c.Partition(l.t, partition)
	if err != nil {
		return nil, from, err
	}
	read, err := p.Read(storage.ReadRequest{From: from, MaxBytes: readBytes, MinOneBatch: true, Isolation: model.ReadCommitted})
	if err != nil || read.Slice == nil {
		return nil, max(from, read.Next), err
	}
	defer read.Slice.Release()
	rest, err := read.Slice.Bytes()
	var all []deadletter.Dead
	for err == nil && len(rest) > 0 {
		var view batch.View
		if view, rest, err = batch.Parse(rest); err == nil {
			all, err = l.unpack(all, partition, view, read.Aborted, from)
		}
	}
	return all, read.Next, err
}

// unpack adds the records of a batch that a reader of committed data sees.
func (l *insideLog) unpack(all []deadletter.Dead, partition int32, view batch.View, aborted []storage.AbortedTxn, from model.Offset) ([]deadletter.Dead, error) {
	hidden := view.IsControl() || view.IsTransactional() && slices.ContainsFunc(aborted, func(a storage.AbortedTxn) bool {
		return a.ProducerID == view.ProducerID() && a.First <= view.BaseOffset() && view.BaseOffset() <= a.Last
	})
	if hidden {
		return all, nil
	}
	for r, err := range view.Records(int64(l.t.Settings.MaxDecompressedBytes)) {
		if err != nil {
			return all, err
		}
		if r.Offset >= from {
			all = append(all, deadletter.Dead{Partition: partition, Offset: r.Offset, Timestamp: r.Timestamp,
				Key: r.Key, Value: r.Value, Headers: slices.Collect(r.Headers.All())})
		}
	}
	return all, nil
}

// Publish implements deadletter.Log: all of them are one entry.
func (l *insideLog) Publish(ctx context.Context, all []deadletter.Publication) error {
	at := model.Timestamp(time.Now().UnixMilli())
	builders := map[*storage.Partition]*batch.Builder{}
	var order []*storage.Partition
	for _, one := range all {
		p, err := l.target(one)
		if err != nil {
			return err
		}
		if builders[p] == nil {
			builders[p] = batch.NewBuilder(batch.BuilderOptions{})
			order = append(order, p)
		}
		builders[p].Add(batch.NewRecord{Timestamp: at, Key: one.Key, Value: one.Value, Headers: one.Headers})
	}
	var produce coordinator.Produce
	for _, p := range order {
		view, err := builders[p].Build()
		if err != nil {
			return fmt.Errorf("build batch: %w", err)
		}
		produce.Batches = append(produce.Batches, coordinator.ProduceBatch{Partition: p, Batch: view})
	}
	if len(order) == 0 {
		return nil
	}
	pending, err := l.c.Produce(produce)
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

// target finds the partition a record goes back to: the one it came from if it is
// still there, else one for its key.
func (l *insideLog) target(one deadletter.Publication) (*storage.Partition, error) {
	t, ok := l.c.Catalog().Topic(one.Topic)
	if !ok || t.Internal {
		return nil, &catalog.Error{Kind: catalog.ErrUnknownTopic, Text: fmt.Sprintf("no topic %s", one.Topic)}
	}
	n := one.Partition
	if !t.Has(n) {
		n = int32(murmur2(one.Key)&0x7fffffff) % t.Partitions
	}
	return l.c.Partition(t, n)
}

// Commit implements deadletter.Log.
func (l *insideLog) Commit(ctx context.Context, id string, partition int32, next model.Offset) error {
	errs, err := l.c.CommitOffsets(group.CommitOffsets{Group: id, Caller: group.Anonymous, Retention: -1, Offsets: []group.Commit{{
		Topic: l.t.Name, TopicID: l.t.ID, Partition: partition, Offset: next, LeaderEpoch: model.NoLeaderEpoch,
	}}}).Wait(ctx)
	return errors.Join(append(errs, err)...)
}

// murmur2 is the hash by which Kafka's clients place keys.
func murmur2(key []byte) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := uint32(seed) ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
