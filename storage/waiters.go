package storage

// Waiter sleeps until one of the partitions it watches changes. It has no
// goroutine.
type Waiter struct{ c chan struct{} }

// NewWaiter returns a Waiter that watches nothing.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C receives when High, Stable or Start of a watched partition has moved or the
// partition has died. Several changes may be one receive.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Watch adds w to those woken by p. Look at the partition after Watch, not before.
func (p *Partition) Watch(w *Waiter) {}

// Unwatch removes w. Once per Watch.
func (p *Partition) Unwatch(w *Waiter) {}
