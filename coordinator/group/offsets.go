package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// partition names a log as the facts do.
type partition struct {
	topic  string
	number int32
}

// committed is what was committed for a partition.
type committed struct {
	offset   model.Offset
	epoch    model.LeaderEpoch
	metadata string
	topicID  model.TopicID
	at       time.Time    // of the commit
	expires  time.Time    // zero: by the broker's retention
	position model.Offset // of the record in the facts log: the larger wins
}

// offsets are the positions of one group.
type offsets struct {
	committed map[partition]committed
	pending   map[partition]map[model.ProducerID]committed
}

func newOffsets() *offsets {
	return &offsets{committed: map[partition]committed{}, pending: map[partition]map[model.ProducerID]committed{}}
}

// partitions lists those with a committed offset, by topic and number. A nil
// receiver has none.
func (o *offsets) partitions() []partition {
	if o == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(o.committed), comparePartitions)
}

func comparePartitions(a, b partition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
}

func (o *offsets) hasPending() bool { return o != nil && len(o.pending) > 0 }

// all lists every partition that has an offset, committed or pending.
func (o *offsets) all() []partition {
	if o == nil {
		return nil
	}
	union := maps.Clone(o.committed)
	for tp := range o.pending {
		union[tp] = committed{}
	}
	return slices.SortedFunc(maps.Keys(union), comparePartitions)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c CommitOffsets) decide(m *Machine, now time.Time) decision {
	if err := m.mayCommit(c.Group, c.Caller, c.Producer != nil); err != nil {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	d := decision{Producer: c.Producer}
	results := make([]error, len(c.Offsets))
	for i, o := range c.Offsets {
		switch {
		case len(o.Metadata) > m.config.MetadataBytes:
			results[i] = ErrMetadataTooLarge
		case tooLong(c.Group, o.Topic, o.Metadata):
			results[i] = ErrInvalidCommand
		default:
			d.Facts = append(d.Facts, c.fact(o, now))
		}
	}
	if len(d.Facts) == 0 {
		d.Producer = nil
	}
	d.Facts = append(d.Facts, m.seen(c.Group, c.Caller, now)...)
	d.Replies = []machine.Reply{machine.Answer(c.Reply, results)}
	return d
}

func (c CommitOffsets) fact(o Commit, now time.Time) Fact {
	value := committed{offset: o.Offset, epoch: o.LeaderEpoch, metadata: o.Metadata, topicID: o.TopicID, at: now}
	if c.Retention > 0 {
		// The one version that can say so knows neither epochs nor topic ids.
		value.expires, value.epoch, value.topicID = now.Add(c.Retention), model.NoLeaderEpoch, model.TopicID{}
	}
	return offsetSet{group: c.Group, partition: partition{o.Topic, o.Partition}, value: value, producer: c.Producer}
}

// mayCommit checks who wants to commit for a group that may not exist: without
// a generation it is created (a "simple" group, which only stores offsets). The
// group "" may store offsets too, which the oldest consumers rely on, but not in
// transactions.
func (m *Machine) mayCommit(id string, c Caller, transactional bool) error {
	if id == "" && transactional {
		return ErrInvalidGroupID
	}
	if g := m.groups[id]; g != nil {
		return g.mayCommit(c, transactional)
	}
	if c.Generation >= 0 && !c.Unchecked {
		if transactional {
			return ErrIllegalGeneration
		}
		return ErrGroupNotFound
	}
	return nil
}

// seen lets a member's commit count as a heartbeat.
func (m *Machine) seen(id string, c Caller, now time.Time) []Fact {
	g := m.groups[id]
	if g == nil || c.Unchecked || g.state == Empty {
		return nil
	}
	member := g.members[c.Member]
	if member == nil || member.deadline.IsZero() || member.fresh {
		return nil
	}
	return []Fact{memberSeen{group: id, member: member.id, deadline: now.Add(member.session)}}
}

func (c FetchOffsets) decide(m *Machine, _ time.Time) decision {
	o := m.offsets[c.Group]
	var answers []Committed
	if c.Partitions == nil {
		for _, tp := range o.partitions() {
			answers = append(answers, o.answer(PartitionOf{Topic: tp.topic, Partition: tp.number}, c.Stable))
		}
	}
	for _, p := range c.Partitions {
		answers = append(answers, o.answer(p, c.Stable))
	}
	return decision{Replies: []machine.Reply{machine.Answer(c.Reply, answers)}}
}

// answer looks one partition up. An offset known to be of another topic with
// the same name does not count.
func (o *offsets) answer(p PartitionOf, stable bool) Committed {
	none := Committed{PartitionOf: p, Offset: model.NoOffset, LeaderEpoch: model.NoLeaderEpoch}
	if o == nil {
		return none
	}
	tp := partition{p.Topic, p.Partition}
	if stable && len(o.pending[tp]) > 0 {
		none.Err = ErrUnstableOffset
		return none
	}
	c, ok := o.committed[tp]
	if !ok || !sameTopic(p.TopicID, c.topicID) {
		return none
	}
	p.TopicID = c.topicID
	return Committed{PartitionOf: p, Offset: c.offset, LeaderEpoch: c.epoch, Metadata: c.metadata, CommitTime: c.at}
}

// sameTopic compares ids of which either may be unknown.
func sameTopic(a, b model.TopicID) bool { return a.IsZero() || b.IsZero() || a == b }

func (c DeleteOffsets) decide(m *Machine, _ time.Time) decision {
	g := m.groups[c.Group]
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	switch {
	case c.Group == "":
		return refuse(ErrInvalidGroupID)
	case g == nil:
		return refuse(ErrGroupNotFound)
	case g.state != Empty && g.protocolType != consumerProtocol && g.protocolType != MoonProtocol:
		return refuse(ErrNonEmptyGroup)
	}
	topics, known := g.subscribed()
	var d decision
	results := make([]error, len(c.Partitions))
	for i, p := range c.Partitions {
		tp := partition{p.Topic, p.Partition}
		if g.state != Empty && (!known || slices.Contains(topics, p.Topic)) {
			results[i] = ErrSubscribedToTopic
		} else if m.offsets[c.Group].has(tp) {
			d.Facts = append(d.Facts, offsetDeleted{group: c.Group, partition: tp})
		}
	}
	d.Replies = []machine.Reply{machine.Answer(c.Reply, results)}
	return d
}

// has reports whether anything is stored for a partition.
func (o *offsets) has(tp partition) bool {
	if o == nil {
		return false
	}
	_, ok := o.committed[tp]
	return ok || len(o.pending[tp]) > 0
}

func (c DropTopic) decide(m *Machine, _ time.Time) decision {
	d := decision{Replies: []machine.Reply{machine.Answer(c.Reply, struct{}{})}}
	for _, id := range sortedKeys(m.offsets) {
		o := m.offsets[id]
		for _, tp := range o.all() {
			if tp.topic == c.Topic && sameTopic(c.ID, o.topicID(tp)) {
				d.Facts = append(d.Facts, offsetDeleted{group: id, partition: tp})
			}
		}
	}
	for _, key := range m.attempts.sorted() {
		if key.topic == c.ID {
			d.Facts = append(d.Facts, attemptsCleared{key: key})
		}
	}
	return d
}

// topicID is the topic an offset belongs to, zero if nobody said.
func (o *offsets) topicID(tp partition) model.TopicID {
	if c, ok := o.committed[tp]; ok {
		return c.topicID
	}
	for _, c := range o.pending[tp] {
		return c.topicID
	}
	return model.TopicID{}
}

// Mutators, for Apply only.

// store puts a plain commit in place. Commits arrive in log order, so it is newer
// than whatever is there.
func (o *offsets) store(tp partition, c committed) { o.committed[tp] = c }

// enrol keeps a transactional commit until its marker.
func (o *offsets) enrol(tp partition, pid model.ProducerID, c committed) {
	if o.pending[tp] == nil {
		o.pending[tp] = map[model.ProducerID]committed{}
	}
	o.pending[tp][pid] = c
}

// settle ends a producer's transaction for one partition.
func (o *offsets) settle(tp partition, pid model.ProducerID, commit bool) {
	c, ok := o.pending[tp][pid]
	if !ok {
		return
	}
	delete(o.pending[tp], pid)
	if len(o.pending[tp]) == 0 {
		delete(o.pending, tp)
	}
	if now, exists := o.committed[tp]; commit && (!exists || c.position > now.position) {
		o.committed[tp] = c
	}
}

func (o *offsets) drop(tp partition) {
	delete(o.committed, tp)
	delete(o.pending, tp)
}
