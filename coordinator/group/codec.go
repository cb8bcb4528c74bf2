package group

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Versions of keys and values; see the package page for their bytes.
const (
	offsetKeyOld      = 0 // read as offsetKey
	offsetKeyVersion  = 1
	groupKeyVersion   = 2
	attemptKeyVersion = 100

	offsetValueExpiring = 1
	offsetValuePlain    = 3
	offsetValueWithID   = 4
	groupValueVersion   = 3
	newestValue         = 4

	attemptValueVersion = 0

	topicIDTag = 0
)

// Codec is the machine.Codec of group facts.
type Codec struct{}

// IsAttempt reports whether a key belongs into __perigee_attempts.
func IsAttempt(key []byte) bool {
	return machine.NewReader(key).Int16() == attemptKeyVersion
}

// Encode implements machine.Codec.
func (Codec) Encode(f Fact) (key, value []byte, ok bool) {
	switch f := f.(type) {
	case offsetSet:
		return encodeOffsetKey(f.group, f.partition), encodeOffset(f.value), true
	case offsetDeleted:
		return encodeOffsetKey(f.group, f.partition), nil, true
	case groupChanged:
		if !f.journal {
			return nil, nil, false
		}
		return encodeGroupKey(f.group.id), encodeGroup(f.group), true
	case groupDeleted:
		return encodeGroupKey(f.group), nil, true
	case attemptsSet:
		return encodeAttemptKey(f.key), encodeAttempt(f.value), true
	case attemptsCleared:
		return encodeAttemptKey(f.key), nil, true
	}
	return nil, nil, false
}

// Decode implements machine.Codec.
func (Codec) Decode(r machine.Record) (Fact, error) {
	if r.Control != machine.NotControl {
		return transactionEnded{producer: r.Producer.ID, commit: r.Control == machine.Commit}, nil
	}
	key := machine.NewReader(r.Key)
	var f Fact
	var err error
	switch version := key.Int16(); {
	case key.Err() != nil:
		return nil, fmt.Errorf("read key version: %w", key.Err())
	case version == offsetKeyOld, version == offsetKeyVersion:
		f, err = decodeOffsetRecord(key, r)
	case version == groupKeyVersion:
		f, err = decodeGroupRecord(key, r)
	case version == attemptKeyVersion:
		f, err = decodeAttemptRecord(key, r)
	default:
		return nil, machine.ErrUnknownFact
	}
	if key.Err() != nil {
		return nil, fmt.Errorf("read key: %w", key.Err())
	}
	return f, err
}

func encodeOffsetKey(group string, tp partition) []byte {
	w := machine.NewWriter(10 + len(group) + len(tp.topic))
	w.Int16(offsetKeyVersion)
	w.String(group)
	w.String(tp.topic)
	w.Int32(tp.number)
	return w.Bytes()
}

func decodeOffsetRecord(key *machine.Reader, r machine.Record) (Fact, error) {
	group := key.String()
	tp := partition{topic: key.String(), number: key.Int32()}
	if r.Value == nil {
		return offsetDeleted{group: group, partition: tp}, nil
	}
	value, err := decodeOffset(r.Value)
	if err != nil {
		return nil, fmt.Errorf("read offset of %s: %w", group, err)
	}
	f := offsetSet{group: group, partition: tp, value: value}
	if r.Transactional {
		f.producer = &r.Producer
	}
	return f, nil
}

// offsetValueBytes is what a value takes at most without its metadata.
const offsetValueBytes = 48

// encodeOffset picks the version that can say what has to be said, as Kafka does.
func encodeOffset(c committed) []byte {
	w := machine.NewWriter(offsetValueBytes + len(c.metadata))
	switch {
	case !c.expires.IsZero():
		w.Int16(offsetValueExpiring)
		w.Int64(int64(c.offset))
		w.String(c.metadata)
		w.Int64(c.at.UnixMilli())
		w.Int64(c.expires.UnixMilli())
	case c.topicID.IsZero():
		w.Int16(offsetValuePlain)
		w.Int64(int64(c.offset))
		w.Int32(int32(c.epoch))
		w.String(c.metadata)
		w.Int64(c.at.UnixMilli())
	default:
		w.Int16(offsetValueWithID)
		w.Int64(int64(c.offset))
		w.Int32(int32(c.epoch))
		w.CompactString(c.metadata)
		w.Int64(c.at.UnixMilli())
		w.Uvarint(1)
		w.Uvarint(topicIDTag)
		w.Uvarint(uint32(len(c.topicID)))
		w.Raw(c.topicID[:])
	}
	return w.Bytes()
}

func decodeOffset(value []byte) (committed, error) {
	r := machine.NewReader(value)
	version := r.Int16()
	if r.Err() == nil && (version < 0 || version > newestValue) {
		return committed{}, machine.ErrUnknownFact
	}
	c := committed{offset: model.Offset(r.Int64()), epoch: model.NoLeaderEpoch}
	if version >= 3 {
		c.epoch = model.LeaderEpoch(r.Int32())
	}
	if version >= 4 {
		c.metadata = r.CompactString()
	} else {
		c.metadata = r.String()
	}
	c.at = time.UnixMilli(r.Int64())
	if version == offsetValueExpiring {
		if at := r.Int64(); at != -1 {
			c.expires = time.UnixMilli(at)
		}
	}
	if version >= 4 {
		c.topicID = readTopicIDTag(r)
	}
	return c, r.Err()
}

func readTopicIDTag(r *machine.Reader) (id model.TopicID) {
	for n := r.Uvarint(); n > 0 && r.Err() == nil; n-- {
		tag, length := r.Uvarint(), r.Uvarint()
		switch {
		case tag == topicIDTag && length == uint32(len(id)):
			r.Raw(id[:])
		case int64(length) > int64(r.Len()):
			r.Fail("tag of %d bytes", length)
		default:
			r.Raw(make([]byte, length))
		}
	}
	return id
}

func encodeGroupKey(group string) []byte {
	var w machine.Writer
	w.Int16(groupKeyVersion)
	w.String(group)
	return w.Bytes()
}

func decodeGroupRecord(key *machine.Reader, r machine.Record) (Fact, error) {
	id := key.String()
	if r.Value == nil {
		return groupDeleted{group: id}, nil
	}
	g, err := decodeGroup(id, r.Value, r.Timestamp)
	if err != nil {
		return nil, fmt.Errorf("read group %s: %w", id, err)
	}
	return groupChanged{group: g, journal: true}, nil
}

// nullable is how an absent name is written.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fromNullable is its reverse.
func fromNullable(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// encodeGroup writes a group as a restart shall find it: at rest, or without a
// leader if it has to rebalance. Members that have not been through a generation
// are left out: the older clients among them do not know their id and could only
// be waited for.
func encodeGroup(g *group) []byte {
	members := slices.DeleteFunc(g.ordered(), func(m *member) bool { return m.fresh })
	leader := g.leader
	if g.state != Stable {
		leader = ""
	}
	var w machine.Writer
	w.Int16(groupValueVersion)
	w.String(g.protocolType)
	w.Int32(g.generation)
	w.NullableString(nullable(g.protocol))
	w.NullableString(nullable(leader))
	w.Int64(g.since.UnixMilli())
	w.Int32(int32(len(members)))
	for _, m := range members {
		w.String(m.id)
		w.NullableString(nullable(m.instance))
		w.String(m.clientID)
		w.String(m.clientHost)
		w.Int32(int32(m.rebalance.Milliseconds()))
		w.Int32(int32(m.session.Milliseconds()))
		w.Blob(m.metadata(g.protocol))
		w.Blob(m.assignment)
	}
	return w.Bytes()
}

// decodeGroup returns the group: Stable, Empty, or without a leader about to
// rebalance. Of the protocols a member offered only the selected one is known.
func decodeGroup(id string, value []byte, written model.Timestamp) (*group, error) {
	r := machine.NewReader(value)
	version := r.Int16()
	if r.Err() == nil && (version < 0 || version > newestValue) {
		return nil, machine.ErrUnknownFact
	}
	text, maybe, blob, count := r.String, r.NullableString, r.Blob, r.Count
	if version >= 4 {
		text, maybe, blob, count = r.CompactString, r.CompactNullableString, r.CompactBlob, r.CompactCount
	}
	g := newGroup(id, time.UnixMilli(int64(written)))
	g.protocolType = text()
	g.generation = r.Int32()
	g.protocol, g.leader = fromNullable(maybe()), fromNullable(maybe())
	if version >= 2 {
		if at := r.Int64(); at != -1 {
			g.since = time.UnixMilli(at)
		}
	}
	for range count(minMemberBytes(version)) {
		m := &member{id: text(), order: len(g.members) + 1}
		if version >= 3 {
			m.instance = fromNullable(maybe())
		}
		m.clientID, m.clientHost = text(), text()
		m.rebalance = -1
		if version >= 1 {
			m.rebalance = time.Duration(r.Int32()) * time.Millisecond
		}
		m.session = time.Duration(r.Int32()) * time.Millisecond
		if m.rebalance < 0 {
			m.rebalance = m.session
		}
		m.protocols = []Protocol{{Name: g.protocol, Metadata: blob()}}
		m.assignment = blob()
		if version >= 4 {
			r.SkipTags()
		}
		g.members[m.id] = m
	}
	if version >= 4 {
		r.SkipTags()
	}
	if len(g.members) > 0 {
		g.state, g.unarmed, g.joins = Stable, true, len(g.members)
		if g.leader == "" {
			g.state, g.previous = PreparingRebalance, Stable
		}
	}
	return g, r.Err()
}

// minMemberBytes is the least a member takes, to refuse absurd counts.
func minMemberBytes(version int16) int {
	if version >= 4 {
		return 11
	}
	return 18
}

func encodeAttemptKey(k attemptKey) []byte {
	var w machine.Writer
	w.Int16(attemptKeyVersion)
	w.String(k.group)
	w.Raw(k.topic[:])
	w.Int32(k.partition)
	w.Int64(int64(k.offset))
	return w.Bytes()
}

func encodeAttempt(a attempt) []byte {
	var w machine.Writer
	w.Int16(attemptValueVersion)
	w.Int32(a.count)
	w.Int64(a.last.UnixMilli())
	w.Bool(a.dead)
	return w.Bytes()
}

func decodeAttemptRecord(key *machine.Reader, r machine.Record) (Fact, error) {
	k := attemptKey{group: key.String()}
	key.Raw(k.topic[:])
	k.partition, k.offset = key.Int32(), model.Offset(key.Int64())
	if r.Value == nil {
		return attemptsCleared{key: k}, nil
	}
	v := machine.NewReader(r.Value)
	if version := v.Int16(); v.Err() == nil && version != attemptValueVersion {
		return nil, machine.ErrUnknownFact
	}
	a := attempt{count: v.Int32(), last: time.UnixMilli(v.Int64()), dead: v.Bool()}
	if v.Err() != nil {
		return nil, errors.Join(errors.New("read attempt counter"), v.Err())
	}
	return attemptsSet{key: k, value: a}, nil
}
