// Package invariant is what the engine calls when it contradicts itself: not for
// what callers or disks get wrong, which are errors, but for what would be a
// mistake of ours.
//
// A violation panics, which is what a test wants. A process that serves others may
// prefer to be loud and live on: it sets a Handler at start.
package invariant

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// Violation is a contradiction: what should hold, and the numbers that do not fit.
type Violation struct {
	What    string
	Numbers []int64
}

func (v *Violation) Error() string {
	var b strings.Builder
	b.WriteString("BUG: ")
	b.WriteString(v.What)
	for i, n := range v.Numbers {
		if i == 0 {
			b.WriteString(":")
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}

var handler atomic.Pointer[func(*Violation)]

// SetHandler replaces the panic; nil brings it back. The handler may be called from
// any goroutine, with locks held, and must not block.
func SetHandler(h func(*Violation)) {
	if h == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&h)
}

// Check reports a violation unless ok. The numbers are the ones that contradict
// each other; passing them costs nothing while all is well.
func Check(ok bool, what string, numbers ...int64) {
	if !ok {
		violated(what, append([]int64(nil), numbers...))
	}
}

func violated(what string, numbers []int64) {
	v := &Violation{What: what, Numbers: numbers}
	if h := handler.Load(); h != nil {
		(*h)(v)
		return
	}
	panic(v)
}
