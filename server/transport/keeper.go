package transport

import (
	"sync"
	"time"
)

// keeper holds released frames of one size for the next requests. A sync.Pool loses
// what it has to every second collection, and frames of megabytes are what brings
// collections on: under a bulk load most requests found the pool empty and paid for
// clearing new memory. A keeper gives up what nobody has needed for keepTime.
type keeper struct {
	limit int // frames kept

	mu struct {
		sync.Mutex
		free  []*Frame
		spare int  // the fewest that were free since the last trim
		armed bool // a trim is to come
	}
}

// keepTime is longer than the pauses of a load, and short beside what somebody
// watches who wonders about the memory of a broker at rest.
const keepTime = 5 * time.Second

func (k *keeper) get() *Frame {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.mu.free) - 1
	if n < 0 {
		return nil
	}
	f := k.mu.free[n]
	k.mu.free[n] = nil
	k.mu.free = k.mu.free[:n]
	k.mu.spare = min(k.mu.spare, n)
	return f
}

// put keeps a frame, or leaves it to the collector.
func (k *keeper) put(f *Frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.free) >= k.limit {
		return
	}
	k.mu.free = append(k.mu.free, f)
	if !k.mu.armed {
		k.mu.armed = true
		time.AfterFunc(keepTime, k.trim)
	}
}

// trim gives up the frames that were free all the time since the last one.
func (k *keeper) trim() {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := copy(k.mu.free, k.mu.free[k.mu.spare:])
	clear(k.mu.free[n:])
	k.mu.free = k.mu.free[:n]
	k.mu.spare = n
	if k.mu.armed = n > 0; k.mu.armed {
		time.AfterFunc(keepTime, k.trim)
	}
}
