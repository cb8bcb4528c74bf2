package moonmq

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// watch is the one goroutine that looks at everybody's clocks: deadlines, and
// heartbeats to silent clients. It sleeps until the earliest of them.
func (f *FrontEnd) watch() {
	defer close(f.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := time.Hour
		for _, s := range f.sessions() {
			next = min(next, s.check(f.now()))
		}
		timer.Reset(max(next, time.Millisecond))
		select {
		case <-timer.C:
		case <-f.kick:
		case <-f.stop:
			return
		}
	}
}

// recheck is how long the watcher leaves a session alone whose clocks stand
// still: while a request is being worked on.
const recheck = 100 * time.Millisecond

// check does what is due for a session and returns in how long to look again.
func (s *session) check(now time.Time) time.Duration {
	if s.ending.Load() {
		return time.Hour
	}
	if s.busy.Load() {
		return recheck
	}
	silent := now.Sub(time.Unix(0, s.lastFrame.Load()))
	if at := s.admitted.Load(); at != 0 {
		return s.checkAdmitted(now, silent, time.Unix(0, at))
	}
	l := s.front.limits
	open := now.Sub(s.accepted)
	switch {
	case silent >= l.PreAuthReadDeadline:
		s.end(&wire.Error{Code: wire.Internal, Message: "deadline exceeded"})
	case open >= l.HandshakeDeadline:
		s.end(&wire.Error{Code: wire.BadProtocol, Message: fmt.Sprintf("handshake not completed within %ss", inSeconds(l.HandshakeDeadline))})
	}
	return min(l.PreAuthReadDeadline-silent, l.HandshakeDeadline-open)
}

func (s *session) checkAdmitted(now time.Time, silent time.Duration, admitted time.Time) time.Duration {
	l := s.front.limits
	threshold := l.HeartbeatInterval * time.Duration(l.HeartbeatMisses)
	switch {
	case silent >= l.IdleDeadline:
		s.end(&wire.Error{Code: wire.Internal, Message: "deadline exceeded"})
	case silent >= threshold:
		s.end(&wire.Error{Code: wire.Internal,
			Message: fmt.Sprintf("no activity for %ss (threshold %ss)", inSeconds(silent.Truncate(time.Second)), inSeconds(threshold))})
	}
	if s.nextBeat.IsZero() {
		s.nextBeat = admitted.Add(l.HeartbeatInterval)
	}
	if !now.Before(s.nextBeat) {
		s.nextBeat = s.nextBeat.Add(l.HeartbeatInterval)
		if silent >= l.HeartbeatInterval/2 && !s.ending.Load() {
			var id wire.CorrelationID
			rand.Read(id[:])
			s.conn.Offer(say(id, &wire.HeartbeatReq{})) // a busy writer shows the client that we live
		}
	}
	return min(l.IdleDeadline-silent, threshold-silent, s.nextBeat.Sub(now))
}

// inSeconds prints a duration as C's %g does.
func inSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'g', 6, 64) }

// end hangs up; a closing error is the last thing the client reads.
func (s *session) end(e *wire.Error) {
	if s.ending.Swap(true) {
		return
	}
	s.conn.HangUp(e, say(wire.CorrelationID{}, e))
}
