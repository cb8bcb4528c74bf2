package txn

import (
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Codec translates between facts and the records of __transaction_state, in
// Kafka's published schema:
//
//	key 0     i16 0 │ transactional id
//	value 0   i16 0 │ i64 producer id │ i16 epoch │ i32 timeout, ms │ i8 state
//	          │ [topic │ [i32 partition]] or null │ i64 last update │ i64 start
//	value 1   the same with compact lengths, and tagged fields:
//	          0 i64 previous producer id       1 i64 next producer id
//	          2 i16 client transaction version 4 i16 last producer epoch
//	          10000 ours: a topic id (16 bytes) for each entry of the topics
//	          10001 ours: i8 owner
//
// Version 1 is written whatever transaction.version says, because version 0
// has no place for what a retried InitProducerId needs after a restart; both
// are read. A tag is left out when it has its default, as Kafka does. Readers
// that know Kafka's schema skip our two.
type Codec struct{}

const (
	keyVersion   = 0
	valueVersion = 1

	tagPrevID    = 0
	tagNextID    = 1
	tagVersion   = 2
	tagLastEpoch = 4
	tagTopicIDs  = 10000
	tagOwner     = 10001
)

// Encode implements machine.Codec. Every fact is journaled.
func (Codec) Encode(f Fact) (key, value []byte, ok bool) {
	k := machine.NewWriter(2 + 2 + len(f.ID))
	k.Int16(keyVersion)
	k.String(f.ID)
	if f.Record == nil {
		return k.Bytes(), nil, true
	}
	return k.Bytes(), encodeRecord(*f.Record), true
}

// What a value takes at most: its fixed fields with all tags, a topic with its id but
// without its name, a partition.
const (
	fixedBytes     = 80
	topicBytes     = 32
	partitionBytes = 4
)

func encodeRecord(r Record) []byte {
	topics := byTopic(r.Partitions)
	room := fixedBytes + len(r.Partitions)*partitionBytes
	for _, t := range topics {
		room += topicBytes + len(t[0].Name)
	}
	w := machine.NewWriter(room)
	w.Int16(valueVersion)
	w.Int64(int64(r.Producer.ID))
	w.Int16(int16(r.Producer.Epoch))
	w.Int32(int32(r.Timeout / time.Millisecond))
	w.Int8(int8(r.State))
	if r.State == Empty {
		w.Uvarint(0) // null, as Kafka writes it for a state that has no partitions
	} else {
		w.Uvarint(uint32(len(topics)) + 1)
	}
	for _, t := range topics {
		w.CompactString(t[0].Name)
		w.Uvarint(uint32(len(t)) + 1)
		for _, p := range t {
			w.Int32(p.Partition)
		}
		w.NoTags()
	}
	w.Int64(int64(r.Updated))
	w.Int64(int64(r.Start))
	encodeTags(&w, r, topics)
	return w.Bytes()
}

func encodeTags(w *machine.Writer, r Record, topics [][]Participant) {
	tags := []struct {
		present bool
		tag     uint32
		bytes   int
	}{
		{r.PrevID != model.NoProducerID, tagPrevID, 8},
		{r.NextID != model.NoProducerID, tagNextID, 8},
		{r.Version != V0, tagVersion, 2},
		{r.LastEpoch != model.NoProducerEpoch, tagLastEpoch, 2},
		{len(topics) > 0, tagTopicIDs, len(topics) * len(model.TopicID{})},
		{r.Owner != Client, tagOwner, 1},
	}
	var present uint32
	for _, t := range tags {
		if t.present {
			present++
		}
	}
	w.Uvarint(present)
	for _, t := range tags {
		if t.present {
			w.Uvarint(t.tag)
			w.Uvarint(uint32(t.bytes))
			encodeTag(w, t.tag, r, topics)
		}
	}
}

func encodeTag(w *machine.Writer, tag uint32, r Record, topics [][]Participant) {
	switch tag {
	case tagPrevID:
		w.Int64(int64(r.PrevID))
	case tagNextID:
		w.Int64(int64(r.NextID))
	case tagVersion:
		w.Int16(int16(r.Version))
	case tagLastEpoch:
		w.Int16(int16(r.LastEpoch))
	case tagTopicIDs:
		for _, t := range topics {
			w.Raw(t[0].Topic[:])
		}
	case tagOwner:
		w.Int8(int8(r.Owner))
	}
}

// byTopic cuts sorted participants where the topic changes.
func byTopic(sorted []Participant) [][]Participant {
	var topics [][]Participant
	for len(sorted) > 0 {
		n := slices.IndexFunc(sorted, func(p Participant) bool { return p.Topic != sorted[0].Topic })
		if n < 0 {
			n = len(sorted)
		}
		topics = append(topics, sorted[:n])
		sorted = sorted[n:]
	}
	return topics
}

// Decode implements machine.Codec. A marker says nothing about an id.
func (Codec) Decode(rec machine.Record) (Fact, error) {
	if rec.Control != machine.NotControl {
		return Fact{}, machine.ErrUnknownFact
	}
	k := machine.NewReader(rec.Key)
	version := k.Int16()
	if k.Err() == nil && version != keyVersion {
		return Fact{}, machine.ErrUnknownFact
	}
	f := Fact{ID: k.String()}
	if k.Err() != nil || rec.Value == nil {
		return f, k.Err()
	}
	r := decodeRecord(machine.NewReader(rec.Value))
	if r.err != nil {
		return Fact{}, r.err
	}
	r.ID = f.ID
	f.Record = &r.Record
	return f, nil
}

// decoded is a record with what went wrong while reading it.
type decoded struct {
	Record
	err error
}

func decodeRecord(r *machine.Reader) decoded {
	version := r.Int16()
	if version < 0 || version > valueVersion {
		r.Fail("transaction state of version %d", version)
	}
	flexible := version >= 1
	d := decoded{Record: Record{PrevID: model.NoProducerID, NextID: model.NoProducerID, LastEpoch: model.NoProducerEpoch}}
	d.Producer.ID = model.ProducerID(r.Int64())
	d.Producer.Epoch = model.ProducerEpoch(r.Int16())
	d.Timeout = time.Duration(r.Int32()) * time.Millisecond
	d.State = State(r.Int8())
	if d.State < Empty || d.State > Dead {
		r.Fail("transaction state %d", d.State)
	}
	topics := decodeTopics(r, flexible)
	d.Updated = model.Timestamp(r.Int64())
	d.Start = model.Timestamp(r.Int64())
	if flexible {
		decodeTags(r, &d.Record, topics)
	}
	for _, t := range topics {
		d.Partitions = append(d.Partitions, t...)
	}
	slices.SortFunc(d.Partitions, compareParticipants)
	d.err = r.Err()
	return d
}

func decodeTopics(r *machine.Reader, flexible bool) [][]Participant {
	name, count := r.String, r.Count
	if flexible {
		name, count = r.CompactString, r.CompactCount
	}
	topics := make([][]Participant, count(3)) // a name, a count and, later, tags
	for i := range topics {
		topic := name()
		topics[i] = make([]Participant, count(4))
		for j := range topics[i] {
			topics[i][j].Name = topic
			topics[i][j].Partition = r.Int32()
		}
		if flexible {
			r.SkipTags()
		}
	}
	return topics
}

func decodeTags(r *machine.Reader, rec *Record, topics [][]Participant) {
	for n := r.Uvarint(); n > 0 && r.Err() == nil; n-- {
		tag, size := r.Uvarint(), int(r.Uvarint())
		if size > r.Len() {
			r.Fail("tag %d of %d bytes in %d", tag, size, r.Len())
			return
		}
		rest := r.Len() - size
		switch tag {
		case tagPrevID:
			rec.PrevID = model.ProducerID(r.Int64())
		case tagNextID:
			rec.NextID = model.ProducerID(r.Int64())
		case tagVersion:
			rec.Version = Version(r.Int16())
		case tagLastEpoch:
			rec.LastEpoch = model.ProducerEpoch(r.Int16())
		case tagOwner:
			rec.Owner = Owner(r.Int8())
		case tagTopicIDs:
			for _, t := range topics {
				var id model.TopicID
				r.Raw(id[:])
				for j := range t {
					t[j].Topic = id
				}
			}
		default:
			r.Raw(make([]byte, size))
		}
		if r.Err() == nil && r.Len() != rest {
			r.Fail("tag %d is not %d bytes long", tag, size)
		}
	}
}
