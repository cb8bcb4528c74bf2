package quota

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestReservationsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		if err := m.Reserve(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		reserve := func(name string, n int64) {
			go func() {
				if err := m.Reserve(t.Context(), n); err != nil {
					t.Error(err)
				}
				order <- name
			}()
			synctest.Wait()
		}
		reserve("large", 90)
		reserve("small", 10) // would fit, but must not overtake
		if len(order) != 0 {
			t.Fatalf("%s got memory too early", <-order)
		}
		m.Release(60)
		synctest.Wait()
		if len(order) != 2 || m.Used() != 100 {
			t.Errorf("%d of 2 served, %d used", len(order), m.Used())
		}
	})
}

func TestAFrameLargerThanTheBudgetGoesAlone(t *testing.T) {
	m := NewMemory(10)
	if err := m.Reserve(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	m.Release(1000)
	if m.Used() != 0 {
		t.Errorf("%d used", m.Used())
	}
}

func TestAGivenUpReservationLetsTheNextOneIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		if err := m.Reserve(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, next := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- m.Reserve(ctx, 90) }()
		synctest.Wait()
		go func() { next <- m.Reserve(t.Context(), 50) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up with %v", err)
		}
		if err := <-next; err != nil || m.Used() != 100 {
			t.Errorf("next served with %v, %d used", err, m.Used())
		}
	})
}
