package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Options describe a shard.
type Options[Command, Fact any] struct {
	Name  string                        // for errors, such as "__consumer_offsets-7"
	Index int32                         // position in the family: shards are held in ascending order of it
	New   func() Machine[Command, Fact] // an empty machine; called again if a replay broke off
	Codec Codec[Fact]
	Facts Facts
	Now   func() time.Time // nil: time.Now
	Timer *Timer           // nil: Due is never asked
}

// Shard is a machine, the log of its facts and the lock around both. It loads
// itself from the log at first use.
type Shard[Command, Fact any] struct {
	name  string
	index int32
	fresh func() Machine[Command, Fact]
	codec Codec[Fact]
	facts Facts
	now   func() time.Time
	alarm *alarm // nil without a timer

	mu struct {
		sync.Mutex
		machine Machine[Command, Fact] // nil until loaded
		last    Pending                // newest entry of this shard; nil when known to be durable
	}
}

// NewShard describes a shard; nothing is read before its first use.
func NewShard[Command, Fact any](o Options[Command, Fact]) *Shard[Command, Fact] {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Shard[Command, Fact]{name: o.Name, index: o.Index, fresh: o.New, codec: o.Codec, facts: o.Facts, now: o.Now}
	if o.Timer != nil {
		s.alarm = o.Timer.register(s.tick)
	}
	return s
}

// Index is the shard's place in its family.
func (s *Shard[Command, Fact]) Index() int32 { return s.index }

// Call runs a command and returns its answer, decided now or later. build puts
// the promise into the command; a refusal by the log becomes the answer.
func Call[T, Command, Fact any](s *Shard[Command, Fact], build func(*Promise[T]) Command) Future[T] {
	return CallWith(s, s.facts.Append, build)
}

// CallWith is Call with another way of sequencing the facts.
func CallWith[T, Command, Fact any](s *Shard[Command, Fact], sequence Sequence, build func(*Promise[T]) Command) Future[T] {
	p := NewPromise[T]()
	if err := s.RunWith(build(p), sequence); err != nil {
		var zero T
		p.answer(zero, err, nil)
	}
	return p.Future()
}

// Run decides a command, sequences its facts and applies them. A nil error says
// that it was decided, not that it is durable: that is what the reply waits for.
func (s *Shard[Command, Fact]) Run(c Command) error { return s.RunWith(c, s.facts.Append) }

// RunWith is Run with another way of sequencing the facts.
func (s *Shard[Command, Fact]) RunWith(c Command, sequence Sequence) error {
	h, err := s.Hold()
	if err != nil {
		return err
	}
	defer h.Release()
	return h.RunWith(c, sequence)
}

// Load replays the facts now instead of at first use, so that the machine's
// deadlines run from here.
func (s *Shard[Command, Fact]) Load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadLocked(ctx)
}

// loadLocked builds the machine from the log. A replay that breaks off leaves
// the shard unloaded, to be tried again by the next command.
func (s *Shard[Command, Fact]) loadLocked(ctx context.Context) error {
	if s.mu.machine != nil {
		return nil
	}
	m := s.fresh()
	err := s.facts.Replay(ctx, func(r Record) error {
		f, err := s.codec.Decode(r)
		if errors.Is(err, ErrUnknownFact) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode fact at offset %d: %w", r.Offset, err)
		}
		m.Apply(f, r.Offset)
		return nil
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", s.name, err)
	}
	s.mu.machine = m
	s.alarm.set(m.Due())
	return nil
}

// tick asks the machine without a command. The timer calls it.
func (s *Shard[Command, Fact]) tick() error {
	var none Command
	return s.Run(none)
}

// Held is a locked and loaded shard.
type Held[Command, Fact any] struct{ s *Shard[Command, Fact] }

// Hold locks the shard until Release, loading it if need be.
func (s *Shard[Command, Fact]) Hold() (Held[Command, Fact], error) {
	s.mu.Lock()
	if err := s.loadLocked(context.Background()); err != nil {
		s.mu.Unlock()
		return Held[Command, Fact]{}, err
	}
	return Held[Command, Fact]{s}, nil
}

// HoldAll locks several different shards of one family, given in ascending
// order of their index. On an error none is held.
func HoldAll[Command, Fact any](shards []*Shard[Command, Fact]) ([]Held[Command, Fact], error) {
	held := make([]Held[Command, Fact], 0, len(shards))
	for i, s := range shards {
		if i > 0 && shards[i-1].index >= s.index {
			panic(fmt.Sprintf("BUG: %s held after %s", s.name, shards[i-1].name))
		}
		h, err := s.Hold()
		if err != nil {
			for _, h := range held {
				h.Release()
			}
			return nil, err
		}
		held = append(held, h)
	}
	return held, nil
}

// Release unlocks the shard.
func (h Held[Command, Fact]) Release() { h.s.mu.Unlock() }

// Run is Shard.Run on a shard that is held.
func (h Held[Command, Fact]) Run(c Command) error { return h.RunWith(c, h.s.facts.Append) }

// RunWith is Shard.RunWith on a shard that is held.
func (h Held[Command, Fact]) RunWith(c Command, sequence Sequence) error {
	s := h.s
	now := s.now()
	d := s.mu.machine.Decide(now, c)
	batch, journaled := s.encode(now, d)
	var got Sequenced
	if len(batch.Records) > 0 || len(batch.Effects) > 0 {
		var err error
		if got, err = sequence(batch); err != nil {
			return fmt.Errorf("append facts to %s: %w", s.name, err)
		}
		s.mu.last = got.Pending
	}
	next := 0
	for i, f := range d.Facts {
		at := model.NoOffset
		if journaled[i] {
			at = got.offset(next)
			next++
		}
		s.mu.machine.Apply(f, at)
	}
	if len(d.Facts) > 0 {
		s.alarm.set(s.mu.machine.Due())
	}
	pending := h.last()
	for _, r := range d.Replies {
		r.deliver(pending)
	}
	return nil
}

// Adopt applies facts that somebody else's entry has put into this shard's log:
// a transaction marker, appended by the transaction coordinator while it holds
// this shard. Replies decided from here on wait for that entry.
func (h Held[Command, Fact]) Adopt(entry Pending, at model.Offset, f Fact) {
	h.s.mu.machine.Apply(f, at)
	h.s.mu.last = entry
	h.s.alarm.set(h.s.mu.machine.Due())
}

// last is the entry a reply decided now has to wait for; nil if none.
func (h Held[Command, Fact]) last() Pending {
	s := h.s
	if s.mu.last == nil {
		return nil
	}
	select {
	case <-s.mu.last.Done():
		if s.mu.last.Err() == nil {
			s.mu.last = nil
		}
	default:
	}
	return s.mu.last
}

// encode makes the batch of a decision and says which of its facts are in it.
func (s *Shard[Command, Fact]) encode(now time.Time, d Decision[Fact]) (Batch, []bool) {
	b := Batch{Timestamp: model.Timestamp(now.UnixMilli()), Producer: d.Producer, Effects: d.Effects}
	journaled := make([]bool, len(d.Facts))
	for i, f := range d.Facts {
		key, value, ok := s.codec.Encode(f)
		if ok {
			b.Records = append(b.Records, Record{Key: key, Value: value})
			journaled[i] = true
		}
	}
	return b, journaled
}
