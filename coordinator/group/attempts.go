package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// maxAttempts bounds the counters of one group; beyond it the one updated
// longest ago is forgotten and its record gets all its deliveries again. MoonMQ's
// number. Records that are counted at the same time are those a group is failing
// on right now, far fewer.
const maxAttempts = 4096

// attemptKey names a record as seen by a group.
type attemptKey struct {
	group     string
	topic     model.TopicID
	partition int32
	offset    model.Offset
}

// attempt is how often a record has failed.
type attempt struct {
	count int32
	last  time.Time
	// dead: the record is in the dead-letter topic, but the group had not read up
	// to it yet, so it will see it again; it must not be moved twice.
	dead bool
}

type attempts struct {
	counts  map[attemptKey]attempt
	byGroup map[string]map[attemptKey]struct{}
}

func newAttempts() attempts {
	return attempts{counts: map[attemptKey]attempt{}, byGroup: map[string]map[attemptKey]struct{}{}}
}

func (a *attempts) set(k attemptKey, v attempt) {
	a.counts[k] = v
	if a.byGroup[k.group] == nil {
		a.byGroup[k.group] = map[attemptKey]struct{}{}
	}
	a.byGroup[k.group][k] = struct{}{}
}

func (a *attempts) clear(k attemptKey) {
	delete(a.counts, k)
	delete(a.byGroup[k.group], k)
	if len(a.byGroup[k.group]) == 0 {
		delete(a.byGroup, k.group)
	}
}

// of lists a group's counters in a fixed order.
func (a *attempts) of(group string) []attemptKey {
	return slices.SortedFunc(maps.Keys(a.byGroup[group]), compareAttempts)
}

func (a *attempts) sorted() []attemptKey {
	return slices.SortedFunc(maps.Keys(a.counts), compareAttempts)
}

func compareAttempts(a, b attemptKey) int {
	return cmp.Or(cmp.Compare(a.group, b.group), bytes.Compare(a.topic[:], b.topic[:]),
		cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
}

// remember returns the facts that store a counter, forgetting the oldest of the
// group if it has too many.
func (a *attempts) remember(k attemptKey, v attempt) []Fact {
	facts := []Fact{attemptsSet{key: k, value: v}}
	if _, known := a.counts[k]; known || len(a.byGroup[k.group]) < maxAttempts {
		return facts
	}
	oldest := slices.MinFunc(a.of(k.group), func(x, y attemptKey) int {
		return a.counts[x].last.Compare(a.counts[y].last)
	})
	return append(facts, attemptsCleared{key: oldest})
}

func (c Nack) decide(m *Machine, now time.Time) decision {
	if err := c.check(m); err != nil {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	key := attemptKey{c.Group, c.Partition.TopicID, c.Partition.Partition, c.Offset}
	count := m.attempts.counts[key]
	count.last = now
	if !count.dead {
		count.count++
	}
	var d decision
	verdict := Verdict{Attempts: count.count, Dead: count.dead || count.count >= c.Deliveries}
	if verdict.Dead {
		verdict.Next, d = c.bury(m, key, count, now)
	} else {
		verdict.Next, d = c.rewind(m, key, count, now)
	}
	d.Facts = append(d.Facts, m.seen(c.Group, c.Caller, now)...)
	d.Replies = []machine.Reply{machine.Answer(c.Reply, verdict)}
	return d
}

func (c Nack) check(m *Machine) error {
	switch {
	case c.Group == "":
		return ErrInvalidGroupID
	case tooLong(c.Group, c.Partition.Topic):
		return ErrInvalidCommand
	}
	return m.mayCommit(c.Group, c.Caller, false)
}

// rewind takes the group back to the record, never forward: what lies between
// the committed offset and the record has not been processed.
func (c Nack) rewind(m *Machine, key attemptKey, count attempt, now time.Time) (next model.Offset, d decision) {
	current, has := c.position(m)
	next = c.Offset
	if has {
		next = min(current, c.Offset)
	}
	if !has || next != current {
		d.Facts = append(d.Facts, c.move(next, now))
	}
	d.Facts = append(d.Facts, m.attempts.remember(key, count)...)
	return next, d
}

// bury gives the record up. The group continues behind it, unless it has not
// read up to it yet: then its position stays, and the counter stays to remember
// that the record has been moved already.
func (c Nack) bury(m *Machine, key attemptKey, count attempt, now time.Time) (next model.Offset, d decision) {
	if !count.dead {
		d.Effects = []machine.Effect{DeadLetter{
			Group: c.Group, Partition: c.Partition, Offset: c.Offset, Attempts: count.count,
		}}
	}
	if current, has := c.position(m); has && current < c.Offset {
		count.dead = true
		d.Facts = m.attempts.remember(key, count)
		return current, d
	}
	next = c.Offset + 1
	d.Facts = []Fact{c.move(next, now), attemptsCleared{key: key}}
	return next, d
}

// position is the group's committed offset of the record's partition.
func (c Nack) position(m *Machine) (model.Offset, bool) {
	answer := m.offsets[c.Group].answer(c.Partition, false)
	return answer.Offset, answer.Offset != model.NoOffset
}

func (c Nack) move(next model.Offset, now time.Time) Fact {
	return offsetSet{
		group: c.Group, partition: partition{c.Partition.Topic, c.Partition.Partition},
		value: committed{offset: next, epoch: model.NoLeaderEpoch, topicID: c.Partition.TopicID, at: now},
	}
}
