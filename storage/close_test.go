package storage

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeemq/perigee/storage/vfs"
)

func TestCloseFinishesWhatWasPromisedAndEndsEveryGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1)
	w := NewWaiter()
	p.Watch(w)
	var appenders sync.WaitGroup
	var mu sync.Mutex
	acked := 0
	for range 8 {
		appenders.Go(func() {
			for {
				pending, err := e.Append(Append{Partition: p, Batch: plain("x")})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := pending.Wait(t.Context()); err != nil {
					t.Errorf("accepted, then %v", err)
				}
				mu.Lock()
				acked++
				mu.Unlock()
			}
		})
	}
	within(t, "a hundred appends", func() bool { return p.Bounds().High > 100 })
	shut(t, e)
	shut(t, e)
	appenders.Wait()
	<-w.C()
	if _, err := p.Read(ReadRequest{}); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if _, err := e.OpenPartition(key(2), "t", PartitionConfig{}); !errors.Is(err, ErrClosed) {
		t.Errorf("open partition: %v", err)
	}
	if err := e.Delete(key(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("delete: %v", err)
	}
	again := open(t, fs)
	if got := len(values(t, part(t, again, 1))); got != acked || !again.Identity().CleanStart {
		t.Errorf("%d records, %d acknowledged, %+v", got, acked, again.Identity())
	}
	shut(t, again)
}

// Without time left, the journal is closed all the same and the next start recovers.
func TestCloseWithoutTimeIsACrashWithoutLoss(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	put(t, e, Append{Partition: part(t, e, 1), Batch: plain("x")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	e = open(t, fs)
	if got := values(t, part(t, e, 1)); len(got) != 1 || e.Identity().CleanStart {
		t.Errorf("read %v, %+v", got, e.Identity())
	}
}
