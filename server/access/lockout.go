package access

import (
	"sync"
	"time"
)

// lockoutAddresses bounds the table of failures: an attacker with more
// addresses than this makes the broker forget the oldest.
const lockoutAddresses = 10_000

// LockoutOptions say when an address is banned. The zero value means the
// defaults beside the fields.
type LockoutOptions struct {
	MaxFailures int           // 5
	Window      time.Duration // failures are counted this long; 60 s
	Ban         time.Duration // 15 min
}

// Lockout counts failed logins for each address and bans those that fail too
// often. Safe for concurrent use. Addresses are whatever the caller compares:
// an IP without port.
type Lockout struct {
	o LockoutOptions

	mu        sync.Mutex
	addresses map[string]*failures
}

type failures struct {
	count  int
	since  time.Time // start of the window
	banned time.Time // until when; zero: not
}

// NewLockout returns an empty table.
func NewLockout(o LockoutOptions) *Lockout {
	if o.MaxFailures == 0 {
		o.MaxFailures = 5
	}
	if o.Window == 0 {
		o.Window = time.Minute
	}
	if o.Ban == 0 {
		o.Ban = 15 * time.Minute
	}
	return &Lockout{o: o, addresses: map[string]*failures{}}
}

// Banned returns how much longer the address is banned, 0 when it is not.
func (l *Lockout) Banned(address string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.addresses[address]; f != nil {
		return max(f.banned.Sub(now), 0)
	}
	return 0
}

// Fail counts a failed login.
func (l *Lockout) Fail(address string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.addresses[address]
	if f == nil {
		l.makeRoomLocked()
		f = &failures{since: now}
		l.addresses[address] = f
	}
	if now.Sub(f.since) >= l.o.Window {
		f.count, f.since = 0, now
	}
	f.count++
	if f.count >= l.o.MaxFailures {
		f.banned = now.Add(l.o.Ban)
	}
}

// Succeed forgets the failures of an address.
func (l *Lockout) Succeed(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.addresses, address)
}

// makeRoomLocked drops the address whose window began longest ago once the
// table is full.
func (l *Lockout) makeRoomLocked() {
	if len(l.addresses) < lockoutAddresses {
		return
	}
	var oldest string
	for address, f := range l.addresses {
		if oldest == "" || f.since.Before(l.addresses[oldest].since) {
			oldest = address
		}
	}
	delete(l.addresses, oldest)
}
