package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// groups carries out what coordinator/group decides: it finds a group's shard,
// puts what must be true together into one entry and serves the shards' clock.
//
//	group id ─► shardOf ─► shard ─┬─ __consumer_offsets-n    (Kafka's schema)
//	                              └─ __perigee_attempts-n    (NACK counters)
//
// Every method may be called from any goroutine and waits for no disk and no
// other member: that is what Futures are for. The exception is the first use of
// a shard whose log could not be read at the start.
type groups struct {
	o      groupsOptions
	shards [offsetsShards]*groupShard
}

// groupsOptions connect the groups to the rest of the coordinator.
type groupsOptions struct {
	Engine *storage.Engine
	// Offsets and Attempts are the handles of the internal topics' partitions.
	Offsets, Attempts func(partition int32) (*storage.Partition, error)
	Now               func() time.Time // must not step backwards
	Timer             *machine.Timer
	Config            *group.Config
}

// groupShard is one partition of __consumer_offsets with its machine.
type groupShard struct {
	*machine.Shard[group.Command, group.Fact]
	log *machine.LogFacts
}

func newGroups(o groupsOptions) *groups { return &groups{o: o} }

// open loads every shard, so that the sessions of members that were connected
// before a restart begin to run now.
func (g *groups) open(ctx context.Context) error {
	for i := range g.shards {
		if err := g.openShard(ctx, int32(i)); err != nil {
			return fmt.Errorf("open groups: %w", err)
		}
	}
	return nil
}

func (g *groups) openShard(ctx context.Context, index int32) error {
	offsets, err := g.o.Offsets(index)
	if err != nil {
		return err
	}
	attempts, err := g.o.Attempts(index)
	if err != nil {
		return err
	}
	log := machine.NewSplitLogFacts(g.o.Engine, offsets, attempts, group.IsAttempt)
	s := &groupShard{log: log, Shard: machine.NewShard(machine.Options[group.Command, group.Fact]{
		Name:  fmt.Sprintf("%s-%d", offsets.Name(), index),
		Index: index,
		New:   func() machine.Machine[group.Command, group.Fact] { return group.New(g.o.Config) },
		Codec: group.Codec{},
		Facts: log,
		Now:   g.o.Now,
		Timer: g.o.Timer,
	})}
	g.shards[index] = s
	return s.Load(ctx)
}

// shard returns the shard of a group.
func (g *groups) shard(id string) *groupShard { return g.shards[shardOf(id, offsetsShards)] }

// NewMemberID makes an id for a member that has none: what the client calls
// itself, and a random part that makes it unique.
func NewMemberID(name string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", name, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// JoinGroup asks for a place in the group's next generation; the answer comes
// when the group has gathered its members. Errors: those of package group and,
// as from every method here, the engine's.
func (g *groups) JoinGroup(c group.JoinGroup) machine.Future[group.JoinResult] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[group.JoinResult]) group.Command {
		c.Reply = p
		return c
	})
}

// SyncGroup asks for a member's assignment; it comes with the leader's.
func (g *groups) SyncGroup(c group.SyncGroup) machine.Future[group.SyncResult] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[group.SyncResult]) group.Command {
		c.Reply = p
		return c
	})
}

// Heartbeat renews a member's session.
func (g *groups) Heartbeat(c group.Heartbeat) machine.Future[struct{}] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[struct{}]) group.Command {
		c.Reply = p
		return c
	})
}

// LeaveGroup removes members; the answer has an error for each of them.
func (g *groups) LeaveGroup(c group.LeaveGroup) machine.Future[[]error] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[[]error]) group.Command {
		c.Reply = p
		return c
	})
}

// AttachMember joins a MoonMQ member, or renews what it reads.
func (g *groups) AttachMember(c group.Attach) machine.Future[struct{}] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[struct{}]) group.Command {
		c.Reply = p
		return c
	})
}

// CommitOffsets stores offsets outside transactions; the answer has an error for
// each of them.
func (g *groups) CommitOffsets(c group.CommitOffsets) machine.Future[[]error] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[[]error]) group.Command {
		c.Reply = p
		return c
	})
}

// commitInTxn stores offsets inside c.Producer's transaction, with others'
// appends behind them in the same entry. If no offset was acceptable nothing is
// appended and the Joint has no Entry. The caller holds the shard of the
// transactional id, so that the transaction cannot end meanwhile.
func (g *groups) commitInTxn(c group.CommitOffsets, with ...storage.Append) (machine.Future[[]error], machine.Joint, error) {
	s := g.shard(c.Group)
	var joint machine.Joint
	p := machine.NewPromise[[]error]()
	c.Reply = p
	err := s.RunWith(c, func(b machine.Batch) (_ machine.Sequenced, err error) {
		joint, err = s.log.AppendWith(b, with...)
		return joint.Sequenced, err
	})
	return p.Future(), joint, err
}

// settle holds the group shards of these partitions of __consumer_offsets while
// sequence appends a transaction's markers, and lets each of them see its
// marker. If sequence refuses, nothing has happened.
func (g *groups) settle(partitions []int32, producer model.ProducerID, commit bool,
	sequence func() (*storage.Pending, error),
) (*storage.Pending, error) {
	shards := make([]*machine.Shard[group.Command, group.Fact], len(partitions))
	for i, p := range partitions {
		shards[i] = g.shards[p].Shard
	}
	held, err := holdAscending(shards)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, h := range held {
			h.Release()
		}
	}()
	pending, err := sequence()
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		h.Adopt(pending, model.NoOffset, group.TransactionEnded(producer, commit))
	}
	return pending, nil
}

// FetchOffsets answers with committed offsets, in the order asked for.
func (g *groups) FetchOffsets(c group.FetchOffsets) machine.Future[[]group.Committed] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[[]group.Committed]) group.Command {
		c.Reply = p
		return c
	})
}

// DeleteOffsets forgets offsets; the answer has an error for each of them.
func (g *groups) DeleteOffsets(c group.DeleteOffsets) machine.Future[[]error] {
	return machine.Call(g.shard(c.Group).Shard, func(p *machine.Promise[[]error]) group.Command {
		c.Reply = p
		return c
	})
}

// DescribeGroup answers with a group, or group.ErrGroupNotFound.
func (g *groups) DescribeGroup(id string) machine.Future[group.Description] {
	return machine.Call(g.shard(id).Shard, func(p *machine.Promise[group.Description]) group.Command {
		return group.DescribeGroup{Group: id, Reply: p}
	})
}

// ListGroups asks every shard; the function returned waits for what they answered
// to be durable.
func (g *groups) ListGroups() func(context.Context) ([]group.Listing, error) {
	var answers [offsetsShards]machine.Future[[]group.Listing]
	for i, s := range g.shards {
		answers[i] = machine.Call(s.Shard, func(p *machine.Promise[[]group.Listing]) group.Command {
			return group.ListGroups{Reply: p}
		})
	}
	return func(ctx context.Context) ([]group.Listing, error) {
		var all []group.Listing
		for _, f := range answers {
			some, err := f.Wait(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	}
}

// DeleteGroup removes an empty group and its offsets.
func (g *groups) DeleteGroup(id string) machine.Future[struct{}] {
	return machine.Call(g.shard(id).Shard, func(p *machine.Promise[struct{}]) group.Command {
		return group.DeleteGroup{Group: id, Reply: p}
	})
}

// dropTopic forgets a deleted topic's offsets and counters in all groups. The
// catalog's fact comes first: if the process ends in between, the offsets that
// stay carry the old topic's id and are not shown for a new one.
func (g *groups) dropTopic(name string, id model.TopicID) error {
	var errs []error
	for _, s := range g.shards {
		errs = append(errs, s.Run(group.DropTopic{Topic: name, ID: id}))
	}
	return errors.Join(errs...)
}

// Nack counts a failure of one record. Below the limit the group goes back to
// the record; at it, dead is called, under the group's lock, for the appends
// that put the record into its dead-letter topic: they join the entry that moves
// the group on. An error of dead refuses the whole command.
func (g *groups) Nack(c group.Nack, dead func(group.DeadLetter) ([]storage.Append, error)) machine.Future[group.Verdict] {
	s := g.shard(c.Group)
	sequence := func(b machine.Batch) (machine.Sequenced, error) {
		var letters []storage.Append
		for _, effect := range b.Effects {
			more, err := dead(effect.(group.DeadLetter))
			if err != nil {
				return machine.Sequenced{}, err
			}
			letters = append(letters, more...)
		}
		joint, err := s.log.AppendWith(b, letters...)
		return joint.Sequenced, err
	}
	return machine.CallWith(s.Shard, sequence, func(p *machine.Promise[group.Verdict]) group.Command {
		c.Reply = p
		return c
	})
}
