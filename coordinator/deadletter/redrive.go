package deadletter

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// Dead is a record of a dead-letter topic.
type Dead struct {
	Partition int32
	Offset    model.Offset
	Timestamp model.Timestamp
	Key       []byte
	Value     []byte
	Headers   []batch.RecordHeader
}

// Publication is a record on its way back.
type Publication struct {
	Topic     string
	Partition int32 // -1: by key
	Key       []byte
	Value     []byte
	Headers   []batch.RecordHeader
}

// size is about what it takes in a batch.
func (p *Publication) size() int {
	n := len(p.Key) + len(p.Value)
	for _, h := range p.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// Fate is what a redrive does with one record.
type Fate string

const (
	Redriven  Fate = "redriven"
	Filtered  Fate = "filtered"   // left out by the caller's filter
	NoOrigin  Fate = "no origin"  // nothing says where it came from
	Loop      Fate = "would loop" // it came from this very topic
	Exhausted Fate = "replayed too often"
	Pointer   Fate = "pointer only" // its value is not here
)

// Redrive is a plan to send dead records back. The zero value of a field means
// what stands beside it.
type Redrive struct {
	Topic      string          // the dead-letter topic; required
	Group      string          // under which progress is committed; required to execute
	To         string          // send everything there; where it came from
	Keep       func(Dead) bool // which records; all
	End        model.Timestamp // stop in front of the first that died then or later, so that a run with a later end goes on there; no end
	Max        int             // redriven records; no limit
	Rate       float64         // redriven records a second; no limit
	MaxReplays int             // a record redriven so often already is left; 5
	Execute    bool            // false: count only

	// Pause waits, for Rate.
	Pause func(ctx context.Context, d time.Duration) error
}

// ProgressGroup names the group of a redrive. Its conditions are part of the name:
// what they leave out must not be passed by for other redrives. Empty ones do not
// count.
func ProgressGroup(topic string, conditions ...string) string {
	name := "perigee-redrive-" + topic
	if !slices.ContainsFunc(conditions, func(c string) bool { return c != "" }) {
		return name
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%q", conditions)
	return fmt.Sprintf("%s-%08x", name, h.Sum32())
}

// defaultMaxReplays ends the life of a record that dies again each time.
const defaultMaxReplays = 5

// Span is what to look at in one partition: [From, To).
type Span struct {
	Partition int32
	From, To  model.Offset
}

// Log is a dead-letter topic and the way back, seen over the wire or from inside
// the broker.
type Log interface {
	// Read returns records of a partition from an offset on, and where to read on;
	// none at the end of what is committed.
	Read(ctx context.Context, partition int32, from model.Offset) ([]Dead, model.Offset, error)
	// Publish returns when all of them are durable.
	Publish(ctx context.Context, all []Publication) error
	// Commit stores a group's progress, the next offset to look at.
	Commit(ctx context.Context, group string, partition int32, next model.Offset) error
}

// Report counts what a redrive did, or would do.
type Report struct {
	Fates   map[Fate]int   `json:"fates"`
	Reasons map[string]int `json:"reasons"` // why they had died, of the records redriven
	Targets map[string]int `json:"targets"` // where they went
}

// TopReasons lists the reasons by how many records had them.
func (r *Report) TopReasons() []string {
	return slices.SortedFunc(maps.Keys(r.Reasons), func(a, b string) int {
		if r.Reasons[a] != r.Reasons[b] {
			return r.Reasons[b] - r.Reasons[a]
		}
		if a < b {
			return -1
		}
		return 1
	})
}

// Judge decides about one record.
func (r *Redrive) Judge(d Dead) (Publication, Provenance, Fate) {
	p, found := Find(d.Headers)
	out := Publication{Topic: p.Topic, Partition: p.Partition, Key: d.Key, Value: d.Value}
	if r.To != "" {
		out.Topic, out.Partition = r.To, -1
	}
	replays := Replays(d.Headers)
	switch {
	case r.Keep != nil && !r.Keep(d):
		return out, p, Filtered
	case out.Topic == "":
		return out, p, NoOrigin
	case out.Topic == r.Topic:
		return out, p, Loop
	case replays >= r.maxReplays():
		return out, p, Exhausted
	case isPointer(d.Headers):
		return out, p, Pointer
	}
	for _, h := range d.Headers {
		if !Ours(h.Key) && !(found && Foreign(h.Key)) && h.Key != HeaderReplays {
			out.Headers = append(out.Headers, h)
		}
	}
	out.Headers = append(out.Headers, batch.RecordHeader{Key: HeaderReplays, Value: []byte(strconv.Itoa(replays + 1))})
	return out, p, Redriven
}

func (r *Redrive) maxReplays() int {
	if r.MaxReplays == 0 {
		return defaultMaxReplays
	}
	return r.MaxReplays
}

func isPointer(headers []batch.RecordHeader) bool {
	v, _ := last(headers, HeaderPointer)
	return string(v) == "true"
}

// Run carries the plan out, partition by partition. Records are published before
// progress is committed, so that a redrive that is cut off repeats some and loses
// none; the next one goes on where this one committed. On an error the report
// tells how far it came.
func (r *Redrive) Run(ctx context.Context, log Log, spans []Span) (*Report, error) {
	report := &Report{Fates: map[Fate]int{}, Reasons: map[string]int{}, Targets: map[string]int{}}
	for _, s := range spans {
		for s.From < s.To && !r.full(report) {
			next, err := r.step(ctx, log, s, report)
			if err != nil {
				return report, fmt.Errorf("partition %d at offset %d: %w", s.Partition, s.From, err)
			}
			if next <= s.From {
				break
			}
			s.From = next
		}
	}
	return report, nil
}

func (r *Redrive) full(report *Report) bool { return r.Max > 0 && report.Fates[Redriven] >= r.Max }

// step deals with what one read brings and returns where to go on.
func (r *Redrive) step(ctx context.Context, log Log, s Span, report *Report) (model.Offset, error) {
	records, next, err := log.Read(ctx, s.Partition, s.From)
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	next = min(next, s.To)
	var out []Publication
	for _, d := range records {
		if d.Offset >= s.To || r.full(report) || r.End > 0 && d.Timestamp >= r.End {
			next = min(next, d.Offset)
			break
		}
		p, from, fate := r.Judge(d)
		report.Fates[fate]++
		if fate == Redriven {
			report.Reasons[from.Reason]++
			report.Targets[p.Topic]++
			out = append(out, p)
		}
	}
	if !r.Execute {
		return next, nil
	}
	if err := r.publish(ctx, log, out); err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	if err := log.Commit(ctx, r.Group, s.Partition, next); err != nil {
		return 0, fmt.Errorf("commit progress: %w", err)
	}
	return next, nil
}

// publishBytes bounds what is published at once: a read of compressed records can
// be much larger when it is unpacked.
const publishBytes = 1 << 20

// publish sends at most a second's worth at a time.
func (r *Redrive) publish(ctx context.Context, log Log, out []Publication) error {
	for len(out) > 0 {
		n, bytes := 0, 0
		for n < len(out) && (n == 0 || bytes+out[n].size() <= publishBytes) {
			bytes += out[n].size()
			n++
		}
		if r.Rate > 0 {
			n = min(n, max(1, int(r.Rate)))
		}
		if err := log.Publish(ctx, out[:n]); err != nil {
			return err
		}
		out = out[n:]
		if r.Rate > 0 {
			if err := r.Pause(ctx, time.Duration(float64(n)/r.Rate*float64(time.Second))); err != nil {
				return err
			}
		}
	}
	return nil
}
