package txn

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Describe reads the record of one id. ErrNotFound when there is none.
type Describe struct{ ID string }

func (c Describe) decide(m *Machine, _ time.Time, _ model.ProducerID) Decision {
	e, ok := m.ids[c.ID]
	switch {
	case c.ID == "":
		return refuse(ErrInvalidRequest)
	case !ok, e.State == Dead:
		return refuse(ErrNotFound)
	}
	return Decision{Answer: Answer{Producer: e.Producer, Records: []Record{e.Record}}}
}

// List reads all records that pass every filter; the zero value of a filter
// passes everything. Sorted by id.
type List struct {
	States    []State
	Producers []model.ProducerID
	// Longer keeps what started more than this ago, ids that never started a
	// transaction included, as Kafka does. nil: all.
	Longer  *time.Duration
	Pattern *regexp.Regexp // must match the whole id; see CompilePattern
}

// CompilePattern prepares List.Pattern: a pattern matches whole ids only.
func CompilePattern(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err // before it is wrapped: "a)(b" must not become valid
	}
	return regexp.Compile(`^(?:` + pattern + `)$`)
}

func (c List) decide(m *Machine, now time.Time, _ model.ProducerID) Decision {
	var d Decision
	for _, e := range m.ids {
		if c.passes(e.Record, now) {
			d.Records = append(d.Records, e.Record)
		}
	}
	slices.SortFunc(d.Records, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return d
}

func (c List) passes(r Record, now time.Time) bool {
	switch {
	case r.State == Dead,
		len(c.States) > 0 && !slices.Contains(c.States, r.State),
		len(c.Producers) > 0 && !slices.Contains(c.Producers, r.Producer.ID),
		c.Longer != nil && now.Sub(time.UnixMilli(int64(r.Start))) <= *c.Longer,
		c.Pattern != nil && !c.Pattern.MatchString(r.ID):
		return false
	}
	return true
}

// Records returns what is known, in no order.
func (m *Machine) Records() []Record {
	all := make([]Record, 0, len(m.ids))
	for _, e := range m.ids {
		all = append(all, e.Record)
	}
	return all
}
