package moonmq

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/transport"
)

// headersCapability in a client's version string asks for record headers.
const headersCapability = "headers"

// fetch serves FETCH: it never waits for records, and commits what it delivers.
func (s *session) fetch(r request) (answer, error) {
	m := r.body.(*wire.Fetch)
	if err := s.mayRead(m.Topic, m.Group); err != nil {
		return answer{}, err
	}
	if debt := s.fetchDebt(m.Topic); debt != nil {
		return answer{}, debt
	}
	if err := s.bind(s.conn.Context(), m.Group, m.Isolation, modePull); err != nil {
		return answer{}, err
	}
	t, err := s.readable(m.Topic)
	if err != nil {
		return answer{}, err
	}
	ctx := s.conn.Context()
	if err := s.track(ctx, t); err != nil {
		return answer{}, err
	}
	withHeaders := m.Flags&wire.FetchHeaders != 0 || s.wantsHeaders()
	c := s.consumer
	c.mu.Lock()
	c.mode = modePull
	d, err := s.collectLocked(ctx, int(min(m.MaxRecords, 1<<30)), s.front.deliveryBytes(), withHeaders)
	c.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	s.spend(d)
	f := &frames{delivery: d, batched: m.Flags&wire.FetchBatched != 0, withHeaders: withHeaders}
	if m.Flags&wire.FetchNoCommit == 0 && !s.producer.inTransaction {
		f.committed = s.commitDelivery(d)
	}
	return answer{frames: f}, nil
}

func (s *session) wantsHeaders() bool {
	words := strings.FieldsFunc(s.client.Version, func(r rune) bool { return strings.ContainsRune(" ,;+()", r) })
	return slices.Contains(words, headersCapability)
}

// mayRead checks rights and the request quota of FETCH and SUBSCRIBE.
func (s *session) mayRead(topic, groupID string) error {
	if err := s.authorize(access.Read, access.Topic, topic); err != nil {
		return err
	}
	if err := s.authorize(access.Read, access.Group, groupID); err != nil {
		return err
	}
	return s.charge(topic, cost{Requests, 1})
}

// fetchDebt refuses a reader that has not yet paid for its last delivery.
func (s *session) fetchDebt(topic string) error {
	if s.front.access.Open() {
		return nil
	}
	if debt := s.front.quotas.debt(s.user, topic, s.front.now(), FetchRecords, FetchBytes); debt != nil {
		return debt
	}
	return nil
}

// spend charges a delivery, by topic.
func (s *session) spend(d *delivery) {
	records, bytes := map[string]int{}, map[string]int{}
	for i := range d.records {
		r := &d.records[i]
		records[r.Topic]++
		bytes[r.Topic] += len(r.Key) + len(r.Value)
	}
	for topic, n := range records {
		s.front.metrics.fetched(topic, n)
		if !s.front.access.Open() {
			s.front.quotas.spend(s.user, topic, s.front.now(), cost{FetchRecords, float64(n)}, cost{FetchBytes, float64(bytes[topic])})
		}
	}
}

// commitDelivery stores where the delivered partitions continue. Partitions that
// only skipped something are not committed.
func (s *session) commitDelivery(d *delivery) *machine.Future[[]error] {
	var commits []group.Commit
	for _, m := range d.moved {
		if m.delivered > 0 {
			commits = append(commits, commitOf(m.partitionAt, m.to))
		}
	}
	if commits == nil {
		return nil
	}
	f := s.front.commitLater(s.consumer.group, commits)
	return &f
}

// commitLater stores offsets; it returns when that is decided.
func (f *FrontEnd) commitLater(groupID string, commits []group.Commit) machine.Future[[]error] {
	return f.coordinator.CommitOffsets(group.CommitOffsets{Group: groupID, Caller: unchecked, Retention: -1, Offsets: commits})
}

// commit stores offsets and waits.
func (f *FrontEnd) commit(ctx context.Context, groupID string, commits []group.Commit) error {
	errs, err := f.commitLater(groupID, commits).Wait(ctx)
	return errors.Join(append(errs, err)...)
}

// frames is the answer to a FETCH: the records, when their positions are
// committed, and the OK that ends it.
type frames struct {
	*delivery
	batched, withHeaders bool
	committed            *machine.Future[[]error] // nil: nothing to commit
}

// frameBytes is where a RECORD_BATCH is cut: well under what clients accept.
const frameBytes = 4 << 20

func (f *frames) reply(s *session, id wire.CorrelationID) transport.Reply {
	size := int64(f.bytes)
	if s.pending.Add(size) > int64(s.front.limits.MaxPendingBytes) {
		s.ending.Store(true) // requests that were read ahead are not served any more
		s.conn.HangUp(errPending, nil)
	}
	return func(ctx context.Context) (transport.Output, error) {
		// It waits no longer: the client may have all of it, and ask again, before
		// the write returns.
		defer s.pending.Add(-size)
		if f.committed != nil {
			errs, err := f.committed.Wait(ctx)
			if err := errors.Join(append(errs, err)...); err != nil {
				return output(id, s.front.errorOf(err)), nil
			}
		}
		return transport.Output{Parts: []transport.Part{{Bytes: wire.Append(f.encode(id), id, &wire.OK{})}}}, nil
	}
}

// errPending ends a connection whose client asks faster than it reads.
var errPending = errors.New("too many bytes wait for the client")

// encode makes the record frames, in one piece of memory with room for an OK.
func (f *frames) encode(id wire.CorrelationID) []byte {
	const header = wire.LengthSize + wire.HeaderSize
	b := make([]byte, 0, f.bytes+header*(len(f.records)+1)+4)
	if !f.batched {
		for i := range f.records {
			b = wire.Append(b, id, &f.records[i])
		}
		return b
	}
	for rest := f.records; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) && n < wire.MaxBatchRecords && (n == 0 || bytes < frameBytes) {
			bytes += rest[n].Size(f.withHeaders)
			n++
		}
		b = wire.Append(b, id, &wire.RecordBatch{Records: rest[:n], WithHeaders: f.withHeaders})
		rest = rest[n:]
	}
	return b
}

// commit serves COMMIT.
func (s *session) commit(r request) (answer, error) {
	m := r.body.(*wire.Commit)
	at, err := s.give(m.Topic, m.Partition, giving{
		unbound: "commit requires prior subscribe/fetch", lapsed: "group membership lapsed; rejoin before committing",
	})
	if err != nil {
		return answer{}, err
	}
	future := s.front.commitLater(s.consumer.group, []group.Commit{commitOf(at, clampOffset(m.Offset))})
	return answer{later: func(ctx context.Context) (wire.Message, error) {
		errs, err := future.Wait(ctx)
		if err := errors.Join(append(errs, err)...); err != nil {
			return nil, err
		}
		return &wire.OK{}, nil
	}}, nil
}
