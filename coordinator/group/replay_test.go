package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeemq/perigee/storage/model"
)

// TestReplayEqualsWhatHappened runs random commands and then compares what must
// survive with a machine that has only read the facts. Groups at rest, offsets,
// pending offsets and counters are equal; of a group in a rebalance only its
// offsets are.
func TestReplayEqualsWhatHappened(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStage()
		s.config.OffsetRetention, s.config.RetentionCheck = time.Hour, 10*time.Minute
		n := rapid.IntRange(1, 60).Draw(rt, "commands")
		for range n {
			s.perform(t, randomCommand(rt))
		}
		s.perform(t, "list") // loads the shard if nothing did
		moving := rebalancing(s.live)
		before := durable(s.live, moving)
		s.perform(t, "restart")
		s.perform(t, "list")
		if after := durable(s.live, moving); after != before {
			rt.Fatalf("before the restart:\n%s\nafter:\n%s", before, after)
		}
	})
}

// randomCommand is a line of a story.
func randomCommand(rt *rapid.T) string {
	group := "group=" + rapid.SampledFrom([]string{"g", "h"}).Draw(rt, "group")
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "member")
	gen := rapid.IntRange(0, 4).Draw(rt, "generation")
	where := fmt.Sprintf("%s/%d", rapid.SampledFrom([]string{"t#1", "u#2", "t"}).Draw(rt, "topic"), rapid.IntRange(0, 1).Draw(rt, "partition"))
	offset := rapid.IntRange(0, 9).Draw(rt, "offset")
	pid := rapid.IntRange(1, 2).Draw(rt, "producer")
	lines := []string{
		fmt.Sprintf("join %s new=%s topics=t", group, id),
		fmt.Sprintf("join %s id=%s topics=t", group, id),
		fmt.Sprintf("join %s new=%s%d instance=%s topics=t", group, id, offset, id),
		fmt.Sprintf("sync %s id=%s gen=%d assign=%s:x", group, id, gen, id),
		fmt.Sprintf("leave %s %s", group, id),
		fmt.Sprintf("commit %s %s=%d", group, where, offset),
		fmt.Sprintf("commit %s %s=%d id=%s gen=%d", group, where, offset, id, gen),
		fmt.Sprintf("commit %s %s=%d keep=20m", group, where, offset),
		fmt.Sprintf("commit %s %s=%d pid=%d", group, where, offset, pid),
		fmt.Sprintf("end %s pid=%d commit", group, pid),
		fmt.Sprintf("end %s pid=%d abort", group, pid),
		fmt.Sprintf("delete-offsets %s %s", group, where),
		fmt.Sprintf("delete %s", group),
		fmt.Sprintf("drop-topic %s t#1", group),
		fmt.Sprintf("nack %s t#1/0=%d unchecked max=2", group, offset),
		fmt.Sprintf("wait %s for=%dm", group, 1+offset*5),
	}
	return rapid.SampledFrom(lines).Draw(rt, "command")
}

// rebalancing lists the groups that are between two generations.
func rebalancing(m *Machine) []string {
	return slices.DeleteFunc(sortedKeys(m.groups), func(id string) bool {
		return m.groups[id].state == Stable || m.groups[id].state == Empty
	})
}

// durable prints what a restart must not change: of groups that are moving, the
// offsets alone; of groups that nothing was ever stored for, nothing.
func durable(m *Machine, moving []string) string {
	var b strings.Builder
	for _, id := range sortedKeys(m.groups) {
		g, o := m.groups[id], m.offsets[id]
		if g.generation > 0 && !slices.Contains(moving, id) {
			fmt.Fprintf(&b, "  %s %s %q %q generation %d\n", id, g.state, g.protocolType, g.protocol, g.generation)
			for _, member := range g.ordered() {
				fmt.Fprintf(&b, "  %s %q %q %q %v\n", member.id, member.instance, member.metadata(g.protocol), member.assignment, member.session)
			}
		}
		for _, tp := range o.all() {
			if c, ok := o.committed[tp]; ok {
				fmt.Fprintf(&b, "  %s %v at %d: %d %s %v %v\n", id, tp, c.position, c.offset, c.topicID, c.at.UnixMilli(), c.expires.UnixMilli())
			}
			for _, pid := range slices.Sorted(maps.Keys(o.pending[tp])) {
				fmt.Fprintf(&b, "  %s %v of %d: %d\n", id, tp, pid, o.pending[tp][model.ProducerID(pid)].offset)
			}
		}
	}
	for _, k := range m.attempts.sorted() {
		fmt.Fprintf(&b, "attempts %+v %+v\n", k, m.attempts.counts[k])
	}
	return b.String()
}
