package storage

import (
	"context"

	"github.com/perigeemq/perigee/storage/model"
)

// Pending is an append whose order is fixed and whose durability is awaited.
type Pending struct {
	one [1]Appended
	all []Appended
}

// Appended says where one item went.
type Appended struct {
	Base, Last    model.Offset
	LogAppendTime model.Timestamp // model.NoTimestamp unless the batch carries it
	LogStart      model.Offset
	Duplicate     bool // one of the producer's last five batches; nothing was appended
}

// Done is closed when the append is durable and visible, or has failed. The
// channel is shared by everything one flush covers.
func (p *Pending) Done() <-chan struct{} { return nil }

// Wait returns Err after Done, or the context's error before.
func (p *Pending) Wait(ctx context.Context) error { return ErrClosed }

// Err is nil or ErrPoisoned. Only after Done.
func (p *Pending) Err() error { return nil }

// At is the outcome of the i-th item of the call, known from the start.
func (p *Pending) At(i int) Appended { return p.all[i] }
