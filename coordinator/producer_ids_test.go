package coordinator

import (
	"context"
	"errors"
	"testing"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Ids are given out once, over blocks; a block is ordered before the last one
// is used up, and a refused order is made again.
func TestProducerIDs(t *testing.T) {
	full := errors.New("disk full")
	var orders int
	next, refuse := model.ProducerID(1), false
	ids := &producerIDs{take: func(count int64) machine.Future[model.ProducerID] {
		orders++
		if refuse {
			return machine.Ready(model.NoProducerID, full)
		}
		first := next
		next += model.ProducerID(count)
		return machine.Ready(first, nil)
	}}
	want := model.ProducerID(1)
	take := func(n int) {
		t.Helper()
		for range n {
			if id, err := ids.get(t.Context()); err != nil || id != want {
				t.Fatalf("got %d, %v, want %d", id, err, want)
			}
			want++
		}
	}
	take(producerIDBlock / 2)
	if orders != 1 {
		t.Errorf("%d orders with half a block left", orders)
	}
	take(1)
	if orders != 2 {
		t.Errorf("%d orders with less than half a block left", orders)
	}
	take(producerIDBlock - 1)
	refuse = true
	take(producerIDBlock / 2)
	if _, err := ids.get(t.Context()); !errors.Is(err, full) {
		t.Errorf("without a block: %v", err)
	}
	refuse = false
	take(1)
}

// Whoever stops waiting for a block does not take it from the others.
func TestAProducerIDThatNobodyWaitsForIsNotLost(t *testing.T) {
	never := machine.NewPromise[model.ProducerID]()
	orders := 0
	ids := &producerIDs{take: func(int64) machine.Future[model.ProducerID] {
		orders++
		return never.Future()
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if _, err := ids.get(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if orders != 1 {
		t.Errorf("%d blocks ordered", orders)
	}
	if _, block := ids.next(); block == nil {
		t.Error("an id without a block")
	} else {
		ids.arrived(block, 7, nil)
		ids.arrived(block, 7, nil)
	}
	if id, err := ids.get(t.Context()); id != 7 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
}
