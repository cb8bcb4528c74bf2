package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// Why a record cannot be given back.
var (
	ErrNoRecord      = errors.New("no record")                        // nothing readable at the offset
	ErrControlRecord = errors.New("cannot nack a control record")     // a transaction marker
	ErrAborted       = errors.New("record of an aborted transaction") // for readers of committed data
	errOutOfRange    = fmt.Errorf("%w: out of range", ErrNoRecord)    // below the start, or not stored yet
	errCompacted     = fmt.Errorf("%w: removed by compaction", ErrNoRecord)
)

// RecordError says which record a NACK was refused for.
type RecordError struct {
	Topic     string
	Partition int32
	Offset    model.Offset
	Err       error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("nack %s-%d offset %d: %v", e.Topic, e.Partition, e.Offset, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// deadLetters counts failures of records and moves those that failed too often.
//
//	under the group's shard lock
//	┌────────────────────────────────────────────────────────────────────┐
//	│ group.Nack ─► Engine.Append( the group's offset and counter,        │
//	│                              the record in its dead-letter topic )  │  one entry
//	└────────────────────────────────────────────────────────────────────┘
//
// So a dead record exists exactly once, and the group has passed it, or neither
// is true and the record is delivered again. The dead-letter topic is made by an
// entry before that one; a crash between the two leaves an empty topic.
type deadLetters struct {
	o deadLettersOptions
}

// deadLettersOptions connect the dead letters to the rest of the coordinator.
type deadLettersOptions struct {
	Groups *groups
	Policy func() deadletter.Policy
	// Topic finds a topic by name.
	Topic func(name string) (*catalog.Topic, bool)
	// Create makes a topic and returns when that is sequenced; one that exists
	// already is no error. It is called under a group's lock; what it returns tells
	// the operator and is to be called under none.
	Create func(name string, partitions int32, settings map[string]string) (announce func(), err error)
	// Open returns a partition's handle.
	Open func(t *catalog.Topic, partition int32) (*storage.Partition, error)
	Now  func() time.Time
}

// openDeadLetters connects the dead letters to the rest.
func (c *Coordinator) openDeadLetters() {
	c.deadLetters = &deadLetters{deadLettersOptions{
		Groups: c.groups,
		Policy: func() deadletter.Policy {
			s := c.Catalog().Broker().DeadLetters
			return deadletter.Policy{MaxDeliveries: s.MaxDeliveries, Suffix: s.Suffix}
		},
		Topic:  func(name string) (*catalog.Topic, bool) { return c.Catalog().Topic(name) },
		Create: c.createDeadLetterTopic,
		Open:   c.Partition,
		Now:    time.Now,
	}}
}

// createDeadLetterTopic makes a topic and does not wait: what is appended to it
// stands behind its creation in the journal.
func (c *Coordinator) createDeadLetterTopic(name string, partitions int32, settings map[string]string) (announce func(), err error) {
	asked := []catalog.NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: -1, Settings: settings}}
	effects, err := c.decide(c.creation(asked, false, true, machine.NewPromise[[]catalog.CreatedTopic]()))
	if err != nil {
		return nil, err
	}
	if _, ok := c.Catalog().Topic(name); !ok {
		return nil, catalog.ErrUnknownTopic
	}
	return func() { c.announce(effects) }, nil
}

// Nack is a consumer's refusal of one record.
type Nack struct {
	Group     string
	Caller    group.Caller
	Topic     *catalog.Topic
	Partition int32
	Offset    model.Offset // the record's own
	Reason    string
	// Isolation is the reader's: who reads committed data cannot give back what it
	// could not see.
	Isolation model.Isolation
	// Once gives the record up at once, whatever the policy allows.
	Once bool
	// Pointer leaves the record's value, and a long key, out of the dead record: its
	// headers say where it is.
	Pointer bool
}

// Nacked is what became of the record.
type Nacked struct {
	Dead     bool
	Attempts int32
	Topic    string       // the dead-letter topic, if Dead
	Next     model.Offset // the group's committed offset now
}

// NackRecord decides; the function returned waits until the decision is durable.
// Errors: *RecordError with ErrNoRecord, ErrControlRecord, ErrAborted or a read
// error, deadletter.ErrTopicName, those of group.Nack, and the engine's.
func (d *deadLetters) NackRecord(n Nack) func(context.Context) (Nacked, error) {
	letter, err := d.read(n)
	if err != nil {
		return func(context.Context) (Nacked, error) { return Nacked{}, err }
	}
	policy := d.o.Policy()
	if n.Once {
		policy.MaxDeliveries = 1
	}
	name, nameErr := policy.TopicFor(n.Topic.Name)
	announce := func() {}
	future := d.o.Groups.Nack(group.Nack{
		Group: n.Group, Caller: n.Caller,
		Partition:  group.PartitionOf{Topic: n.Topic.Name, TopicID: n.Topic.ID, Partition: n.Partition},
		Offset:     n.Offset,
		Deliveries: int32(policy.MaxDeliveries),
	}, func(dead group.DeadLetter) ([]storage.Append, error) {
		if nameErr != nil {
			return nil, nameErr
		}
		topic, created, err := d.topic(name, n.Topic)
		if err != nil {
			return nil, err
		}
		announce = created
		return d.bury(n, letter, topic, dead)
	})
	announce()
	return func(ctx context.Context) (Nacked, error) {
		verdict, err := future.Wait(ctx)
		if err != nil {
			return Nacked{}, err
		}
		result := Nacked{Dead: verdict.Dead, Attempts: verdict.Attempts, Next: verdict.Next}
		if verdict.Dead {
			result.Topic = name
		}
		return result, nil
	}
}

// deadRecord is a record on its way to the dead-letter topic, in memory of its own.
type deadRecord struct {
	key, value []byte
	headers    batch.Headers
	timestamp  model.Timestamp
	codec      batch.Compression
}

// read finds the record.
func (d *deadLetters) read(n Nack) (*deadRecord, error) {
	found, err := d.find(n)
	if err != nil {
		return nil, &RecordError{n.Topic.Name, n.Partition, n.Offset, err}
	}
	return found, nil
}

func (d *deadLetters) find(n Nack) (*deadRecord, error) {
	p, err := d.o.Open(n.Topic, n.Partition)
	if err != nil {
		return nil, err
	}
	b := p.Bounds()
	if n.Offset < b.Start || n.Offset >= b.Visible(n.Isolation) {
		return nil, errOutOfRange
	}
	read, err := p.Read(storage.ReadRequest{From: n.Offset, MaxBytes: 1, MinOneBatch: true, Isolation: n.Isolation})
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if read.Slice == nil {
		return nil, errCompacted
	}
	defer read.Slice.Release()
	bytes, err := read.Slice.Bytes()
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	view, _, err := batch.Parse(bytes)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if view.IsTransactional() && !view.IsControl() && abortedAt(read.Aborted, view.ProducerID(), n.Offset) {
		return nil, ErrAborted
	}
	return d.pick(view, n)
}

func abortedAt(aborted []storage.AbortedTxn, id model.ProducerID, o model.Offset) bool {
	return slices.ContainsFunc(aborted, func(a storage.AbortedTxn) bool {
		return a.ProducerID == id && a.First <= o && o <= a.Last
	})
}

// pick takes the record out of its batch.
func (d *deadLetters) pick(view batch.View, n Nack) (*deadRecord, error) {
	for r, err := range view.Records(int64(n.Topic.Settings.MaxDecompressedBytes)) {
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		if r.Offset < n.Offset {
			continue
		}
		if r.Offset > n.Offset {
			break
		}
		if view.IsControl() {
			return nil, ErrControlRecord
		}
		headers := batch.EncodeHeaders(slices.Collect(r.Headers.All()))
		return &deadRecord{slices.Clone(r.Key), slices.Clone(r.Value), headers, r.Timestamp, view.Compression()}, nil
	}
	return nil, errCompacted
}

// longKey is the largest key a pointer keeps: what a MoonMQ client can read.
const longKey = 65536

// bury makes the append that puts the record into its dead-letter topic. It runs
// under the group's lock and waits for nothing.
func (d *deadLetters) bury(n Nack, r *deadRecord, topic *catalog.Topic, dead group.DeadLetter) ([]storage.Append, error) {
	p, err := d.o.Open(topic, deadletter.PartitionFor(n.Partition, topic.Partitions))
	if err != nil {
		return nil, fmt.Errorf("open dead-letter topic: %w", err)
	}
	record := batch.NewRecord{
		Timestamp: model.Timestamp(d.o.Now().UnixMilli()),
		Key:       r.key, Value: r.value,
		Headers: deadletter.Headers(r.headers, deadletter.Provenance{
			Topic: n.Topic.Name, Partition: n.Partition, Offset: n.Offset, Timestamp: r.timestamp,
			Group: n.Group, Deliveries: int(dead.Attempts), Reason: n.Reason,
		}),
	}
	if n.Pointer {
		record.Value = nil
		record.Headers = append(record.Headers, batch.RecordHeader{Key: deadletter.HeaderPointer, Value: []byte("true")})
		if len(record.Key) > longKey {
			record.Key = nil
		}
	}
	// The source batch's codec keeps a record that fitted there fitting here.
	b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.DefaultCodec(r.codec)})
	b.Add(record)
	view, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("build dead record: %w", err)
	}
	return []storage.Append{{Partition: p, Batch: view}}, nil
}

// deadHeaders is what the headers may add to a record, at most: names of topic and
// group, a reason, six header names.
const deadHeaders = 64 << 10

// topic finds or makes the dead-letter topic: as many partitions as its source,
// and room for its records. announce is as in deadLettersOptions.Create.
func (d *deadLetters) topic(name string, source *catalog.Topic) (t *catalog.Topic, announce func(), err error) {
	if t, ok := d.o.Topic(name); ok {
		return t, func() {}, nil
	}
	settings := map[string]string{
		"max.message.bytes": strconv.Itoa(source.Settings.MaxMessageBytes + deadHeaders),
	}
	announce, err = d.o.Create(name, source.Partitions, settings)
	if err != nil {
		return nil, nil, fmt.Errorf("create dead-letter topic %s: %w", name, err)
	}
	if t, ok := d.o.Topic(name); ok {
		return t, announce, nil
	}
	return nil, nil, fmt.Errorf("create dead-letter topic %s: %w", name, catalog.ErrUnknownTopic)
}
