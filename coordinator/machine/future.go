package machine

import (
	"context"
	"sync/atomic"
)

// Future is an answer that may not be decided yet and, once decided, may not be
// durable yet. The zero Future must not be waited for.
type Future[T any] struct{ p *Promise[T] }

// Wait returns the answer once it is decided and everything it was decided from
// is durable. It may be called several times and by several goroutines.
func (f Future[T]) Wait(ctx context.Context) (T, error) {
	var zero T
	select {
	case <-f.p.answered:
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
	if f.p.pending != nil {
		if err := f.p.pending.Wait(ctx); err != nil {
			return zero, err
		}
	}
	return f.p.value, f.p.err
}

// Answered is closed when the answer is decided. Wait may still have to wait
// for the disk then.
func (f Future[T]) Answered() <-chan struct{} { return f.p.answered }

// Ready returns a Future that is answered.
func Ready[T any](v T, err error) Future[T] {
	p := NewPromise[T]()
	p.answer(v, err, nil)
	return Future[T]{p}
}

// Promise is the other end of a Future. It travels inside a command; a machine
// may keep it (in a volatile fact) to answer later, and compares it by identity.
type Promise[T any] struct {
	taken    atomic.Bool
	answered chan struct{}
	// Written before answered is closed, read after.
	value   T
	err     error
	pending Pending
}

// NewPromise returns an unanswered promise.
func NewPromise[T any]() *Promise[T] {
	return &Promise[T]{answered: make(chan struct{})}
}

// Future returns the end to wait at.
func (p *Promise[T]) Future() Future[T] { return Future[T]{p} }

// answer keeps the first answer: a command refused by the log after its machine
// had parked it elsewhere must not be answered twice.
func (p *Promise[T]) answer(v T, err error, pending Pending) {
	if p == nil || !p.taken.CompareAndSwap(false, true) {
		return
	}
	p.value, p.err, p.pending = v, err, pending
	close(p.answered)
}

// Reply is an answer on its way: made by Decide, delivered by the shard after
// the facts are sequenced and applied.
type Reply struct{ deliver func(Pending) }

// Answer replies with a value. A nil promise means that nobody asked.
func Answer[T any](to *Promise[T], v T) Reply {
	return Reply{func(p Pending) { to.answer(v, nil, p) }}
}

// Refuse replies with an error of the machine's domain.
func Refuse[T any](to *Promise[T], err error) Reply {
	return Reply{func(p Pending) {
		var zero T
		to.answer(zero, err, p)
	}}
}
