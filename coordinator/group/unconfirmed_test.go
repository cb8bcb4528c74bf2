package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// TestUnconfirmedMembersAreBounded asks for ids and never comes back, which must
// cost neither memory without end nor, for each, a look at all the others.
func TestUnconfirmedMembersAreBounded(t *testing.T) {
	s := newStage()
	given := 0
	ask := func() error {
		given++
		f := machine.Call(s.shard, func(p *machine.Promise[JoinResult]) Command {
			return JoinGroup{
				Group: "g", NewMember: fmt.Sprint("m", given), ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}},
				SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, RequireKnownMember: true, Reply: p,
			}
		})
		_, err := f.Wait(t.Context())
		return err
	}
	told := func(err error) bool { _, ok := errors.AsType[*MemberIDRequired](err); return ok }
	for range maxUnconfirmed {
		if err := ask(); !told(err) {
			t.Fatalf("join %d: %v", given, err)
		}
	}
	before := s.live.groups["g"]
	if err := ask(); !errors.Is(err, ErrGroupFull) {
		t.Errorf("one more: %v", err)
	}
	if got := s.live.groups["g"]; got != before || len(got.unconfirmed) != maxUnconfirmed {
		t.Errorf("the group was copied, or holds %d", len(got.unconfirmed))
	}
	s.perform(t, "wait for=11s")
	if n := len(s.live.groups["g"].unconfirmed); n != 0 {
		t.Errorf("%d are waited for after their sessions", n)
	}
	if err := ask(); !told(err) {
		t.Errorf("after the others' sessions: %v", err)
	}
}
