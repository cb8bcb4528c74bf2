package moonmq

import (
	"context"
	"runtime/pprof"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// pushRecords is how many records are pushed before their positions are
// committed.
const pushRecords = 256

// How often a pushing connection without news looks again: nobody tells it when
// its topics get more partitions, or when its group gives it others.
const (
	topicPoll  = 2 * time.Second
	memberPoll = 250 * time.Millisecond
)

// subscribe serves SUBSCRIBE: one more topic to be pushed.
func (s *session) subscribe(r request) (answer, error) {
	m := r.body.(*wire.Subscribe)
	if err := s.mayRead(m.Topic, m.Group); err != nil {
		return answer{}, err
	}
	if err := s.bind(s.conn.Context(), m.Group, m.Isolation, modePush); err != nil {
		return answer{}, err
	}
	t, err := s.readable(m.Topic)
	if err != nil {
		return answer{}, err
	}
	if err := s.track(s.conn.Context(), t); err != nil {
		return answer{}, err
	}
	c := s.consumer
	c.mode = modePush
	// The OK leaves before the first record: the pusher starts, or looks again,
	// when the OK is written.
	o := output(r.id, &wire.OK{})
	o.Release = s.startPushing
	return answer{raw: &o}, nil
}

// pusher is the delivery goroutine of a subscribed connection.
type pusher struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// startPushing starts the goroutine, or makes it look again. It runs on the
// write goroutine.
func (s *session) startPushing() {
	c := s.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pusher == nil && !s.ending.Load() {
		ctx, stop := context.WithCancel(s.conn.Context())
		c.pusher = &pusher{stop, make(chan struct{})}
		go s.push(ctx, c.pusher.ended)
	}
	c.wake()
}

// stopPushing ends the goroutine and waits for it.
func (s *session) stopPushing() {
	c := s.consumer
	if c == nil {
		return
	}
	c.mu.Lock()
	p := c.pusher
	c.mu.Unlock()
	if p != nil {
		p.stop()
		<-p.ended
	}
}

// push delivers until the connection ends. A read error ends it silently for the
// rest of the connection, as in the original, but for a line in the log.
func (s *session) push(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("goroutine", "moonmq delivery")))
	w := &watched{waiter: storage.NewWaiter(), partitions: map[model.TopicPartition]*storage.Partition{}}
	defer w.close()
	for ctx.Err() == nil {
		s.watchTopics(w)
		delivered, err := s.pushOnce(ctx)
		if err != nil && ctx.Err() == nil {
			s.front.log.Warn().Err(err).Str("group", s.consumer.group).Msg("pushing to a MoonMQ client stopped")
		}
		if err != nil {
			return
		}
		if delivered == 0 {
			s.await(ctx, w)
		}
	}
}

// await sleeps until something may have changed.
func (s *session) await(ctx context.Context, w *watched) {
	poll := topicPoll
	if s.group.Load() != nil {
		poll = memberPoll
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-w.waiter.C():
	case <-s.consumer.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pushOnce delivers one round: reads, sends, waits until the records are on the
// socket, then commits.
func (s *session) pushOnce(ctx context.Context) (int, error) {
	c := s.consumer
	withHeaders := s.wantsHeaders()
	c.mu.Lock()
	d, err := s.collectLocked(ctx, pushRecords, pushBytes, withHeaders)
	c.mu.Unlock()
	if err != nil || len(d.records) == 0 {
		return 0, err
	}
	written := make(chan struct{})
	reply := s.sending(func(context.Context) (transport.Output, error) {
		f := frames{delivery: d, withHeaders: withHeaders}
		return transport.Output{
			Parts:   []transport.Part{{Bytes: f.encode(wire.CorrelationID{})}},
			Release: func() { close(written) },
		}, nil
	})
	if err := s.conn.Push(ctx, reply); err != nil {
		return 0, err
	}
	<-written
	if err := ctx.Err(); err != nil {
		return 0, err // perhaps not written: the group is not moved
	}
	s.spend(d)
	if err := s.commitPushed(ctx, d); err != nil {
		return 0, err
	}
	s.payDebt(ctx, d)
	return len(d.records), nil
}

// commitPushed commits what was written. A record that was given back meanwhile
// has moved the position back, and the group with it: it must not be moved
// forward again. Inside a transaction nothing is committed.
func (s *session) commitPushed(ctx context.Context, d *delivery) error {
	c := s.consumer
	c.mu.Lock()
	if c.saved != nil {
		c.mu.Unlock()
		return nil
	}
	for i := range d.moved {
		m := &d.moved[i]
		m.to = min(m.to, m.positions[m.partition])
	}
	committed := s.commitDelivery(d)
	c.mu.Unlock()
	if committed == nil {
		return nil
	}
	_, err := committed.Wait(ctx)
	return err
}

// payDebt slows a pushing connection down to its fetch quota.
func (s *session) payDebt(ctx context.Context, d *delivery) {
	if s.front.access.Open() {
		return
	}
	for _, m := range d.moved {
		debt := s.front.quotas.debt(s.user, m.name, s.front.now(), FetchRecords, FetchBytes)
		if debt == nil {
			continue
		}
		timer := time.NewTimer(debt.Retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// watched are the partitions whose growth wakes a pusher.
type watched struct {
	waiter     *storage.Waiter
	partitions map[model.TopicPartition]*storage.Partition
}

// watchTopics watches partitions that were tracked since the last time.
func (s *session) watchTopics(w *watched) {
	c := s.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	snapshot := s.front.coordinator.Catalog()
	for _, tr := range c.topics {
		t, ok := snapshot.TopicByID(tr.id)
		if !ok {
			continue
		}
		for n := range t.Partitions {
			tp := t.Partition(n)
			if w.partitions[tp] != nil {
				continue
			}
			if p, err := s.front.coordinator.Partition(t, n); err == nil {
				p.Watch(w.waiter)
				w.partitions[tp] = p
			}
		}
	}
}

func (w *watched) close() {
	for _, p := range w.partitions {
		p.Unwatch(w.waiter)
	}
}
