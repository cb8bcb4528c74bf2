package access

import (
	"fmt"
	"testing"
	"time"
)

func TestLockout(t *testing.T) {
	l := NewLockout(LockoutOptions{MaxFailures: 3})
	now := time.Unix(1000, 0)
	fail := func(address string, n int) {
		for range n {
			l.Fail(address, now)
		}
	}
	fail("a", 2)
	if got := l.Banned("a", now); got != 0 {
		t.Errorf("banned for %v after two failures", got)
	}
	l.Succeed("a")
	fail("a", 2)
	if got := l.Banned("a", now); got != 0 {
		t.Errorf("banned for %v although a success came between", got)
	}
	fail("a", 1)
	if got := l.Banned("a", now); got != 15*time.Minute {
		t.Errorf("banned for %v, want 15m", got)
	}
	if got := l.Banned("b", now); got != 0 {
		t.Errorf("another address is banned for %v", got)
	}

	// A new window counts from 0 and does not lift the ban.
	now = now.Add(5 * time.Minute)
	fail("a", 1)
	if got := l.Banned("a", now); got != 10*time.Minute {
		t.Errorf("banned for %v, want 10m", got)
	}
	now = now.Add(10 * time.Minute)
	if got := l.Banned("a", now); got != 0 {
		t.Errorf("banned for %v after the ban", got)
	}
}

// The table does not grow with the number of attackers.
func TestLockoutForgetsTheOldestAddress(t *testing.T) {
	l := NewLockout(LockoutOptions{MaxFailures: 1})
	start := time.Unix(0, 0)
	for i := range lockoutAddresses + 1 {
		l.Fail(fmt.Sprint(i), start.Add(time.Duration(i)))
	}
	if len(l.addresses) != lockoutAddresses {
		t.Errorf("%d addresses, want %d", len(l.addresses), lockoutAddresses)
	}
	if l.Banned("0", start) != 0 || l.Banned("1", start) == 0 {
		t.Error("not the oldest address was forgotten")
	}
}
