package storage

import (
	"sync/atomic"
	"time"
)

// manualClock is moved by the test.
type manualClock struct{ millis atomic.Int64 }

func newManualClock() *manualClock {
	c := &manualClock{}
	c.millis.Store(1_700_000_000_000)
	return c
}

func (c *manualClock) now() time.Time { return time.UnixMilli(c.millis.Load()) }

func (c *manualClock) add(millis int64) { c.millis.Add(millis) }
