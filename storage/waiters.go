package storage

// Waiter sleeps until one of the partitions it watches changes. It has no
// goroutine.
type Waiter struct{ c chan struct{} }

// NewWaiter returns a Waiter that watches nothing.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C receives when High, Stable or Start of a watched partition has moved or the
// partition has died. Several changes may be one receive.
func (w *Waiter) C() <-chan struct{} { return w.c }

func (w *Waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Watch adds w to those woken by p. Look at the partition after Watch, not before.
func (p *Partition) Watch(w *Waiter) {
	p.vis.Lock()
	defer p.vis.Unlock()
	p.vis.watchers = append(p.vis.watchers, w)
}

// Unwatch removes w. Once per Watch.
func (p *Partition) Unwatch(w *Waiter) {
	p.vis.Lock()
	defer p.vis.Unlock()
	ws := p.vis.watchers
	for i := range ws {
		if ws[i] == w {
			last := len(ws) - 1
			ws[i], ws[last] = ws[last], nil
			p.vis.watchers = ws[:last]
			return
		}
	}
}

func (v *visible) wakeLocked() {
	for _, w := range v.watchers {
		w.wake()
	}
}
