package transport

import (
	"testing"
	"testing/synctest"
	"time"
)

// A keeper hands back what a load uses again and again, and lets go of what it does
// not need any more.
func TestKeepersLetGoOfWhatNobodyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper{limit: 3}
		free := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.mu.free)
		}
		for range 5 {
			k.put(&Frame{})
		}
		if n := free(); n != 3 {
			t.Fatalf("%d are kept, the limit is 3", n)
		}
		// One is in use all the time, which two at rest can see.
		for range 20 {
			f := k.get()
			time.Sleep(time.Second)
			k.put(f)
		}
		if n := free(); n != 1 {
			t.Errorf("%d are kept, one is needed", n)
		}
		time.Sleep(3 * keepTime)
		if n := free(); n != 0 || k.get() != nil {
			t.Errorf("%d are kept after a rest", n)
		}
		k.put(&Frame{})
		if k.get() == nil {
			t.Error("the next load finds nothing")
		}
	})
}
