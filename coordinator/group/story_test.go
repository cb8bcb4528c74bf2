package group

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

var update = flag.Bool("update", false, "write what happens into the stories")

// TestStories plays testdata/*.txt: a command a line, and below it, indented,
// what is answered then. Calls that wait for others are answered below the
// command that brings them about, under the name they were given. The last
// line after each command is the state of the group it was about.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

func play(t *testing.T, file string) {
	story, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	st := newStage()
	var told strings.Builder
	for line := range strings.Lines(string(story)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // an answer
		}
		told.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, answer := range st.perform(t, line) {
			told.WriteString("  " + answer + "\n")
		}
	}
	if told.String() == string(story) {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(told.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the story goes differently:\n%s", firstDifference(string(story), told.String()))
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s\n\nall of it:\n%s", i+1, w[i], g[i], got)
		}
	}
	return got
}

// stage is a shard with a log in memory and a clock moved by hand.
type stage struct {
	config  Config
	now     time.Time
	facts   *machine.MemoryFacts
	timer   *machine.Timer
	shard   *machine.Shard[Command, Fact]
	live    *Machine
	waiting []call
	group   string
}

// call is an unanswered call.
type call struct {
	name     string
	answered <-chan struct{}
	text     func() string
}

func newStage() *stage {
	s := &stage{config: DefaultConfig, now: time.UnixMilli(1_000_000_000), facts: &machine.MemoryFacts{}}
	s.start()
	return s
}

// start is what a broker does: replay, then serve the clock.
func (s *stage) start() {
	clock := func() time.Time { return s.now }
	s.timer = machine.NewTimer(clock)
	s.shard = machine.NewShard(machine.Options[Command, Fact]{
		Name: "__consumer_offsets-0", Codec: Codec{}, Facts: s.facts, Now: clock, Timer: s.timer,
		New: func() machine.Machine[Command, Fact] { s.live = New(&s.config); return s.live },
	})
	s.waiting = nil
}

// words are a command's arguments: plain ones and key=value.
type words struct {
	plain []string
	named map[string]string
}

func parseWords(fields []string) words {
	w := words{named: map[string]string{}}
	for _, f := range fields {
		if k, v, ok := strings.Cut(f, "="); ok && !strings.Contains(k, "/") {
			w.named[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w words) number(key string, otherwise int64) int64 {
	if v, ok := w.named[key]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return otherwise
}

func (w words) duration(key string, otherwise time.Duration) time.Duration {
	if v, ok := w.named[key]; ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			panic(err)
		}
		return d
	}
	return otherwise
}

func (w words) has(flag string) bool { return slices.Contains(w.plain, flag) }

func (w words) caller() Caller {
	return Caller{
		Member: w.named["id"], Instance: w.named["instance"], Generation: int32(w.number("gen", -1)),
		Unchecked: w.has("unchecked"),
	}
}

// ask runs a command and remembers its promise under a name.
func ask[T any](s *stage, name string, build func(*machine.Promise[T]) Command, show func(T) string) {
	f := machine.Call(s.shard, build)
	s.waiting = append(s.waiting, call{name, f.Answered(), func() string {
		v, err := f.Wait(context.Background())
		if err != nil {
			return "refused: " + err.Error()
		}
		return show(v)
	}})
}

func (s *stage) perform(t *testing.T, line string) (lines []string) {
	fields := strings.Fields(line)
	verb, w := fields[0], parseWords(fields[1:])
	if g, ok := w.named["group"]; ok {
		s.group = g
	} else if s.group == "" {
		s.group = "g"
	}
	name := verb
	if n, ok := w.named["as"]; ok {
		name = n
	}
	run, ok := verbs[verb]
	if !ok {
		t.Fatalf("no such command: %s", line)
	}
	lines = append(lines, run(s, name, w)...)
	s.waiting = slices.DeleteFunc(s.waiting, func(c call) bool {
		select {
		case <-c.answered:
			lines = append(lines, c.name+": "+c.text())
			return true
		default:
			return false
		}
	})
	return append(lines, s.state())
}

var verbs = map[string]func(s *stage, name string, w words) []string{
	"limits": func(s *stage, _ string, w words) []string {
		s.config.InitialRebalanceDelay = w.duration("delay", s.config.InitialRebalanceDelay)
		s.config.MaxMembers = int(w.number("members", int64(s.config.MaxMembers)))
		s.config.MetadataBytes = int(w.number("metadata", int64(s.config.MetadataBytes)))
		s.config.OffsetRetention = w.duration("retention", s.config.OffsetRetention)
		s.config.RetentionCheck = w.duration("check", s.config.RetentionCheck)
		return nil
	},
	"wait": func(s *stage, _ string, w words) []string {
		until := s.now.Add(w.duration("for", 0))
		for {
			next := s.timer.Tick()
			if next.IsZero() || next.After(until) {
				break
			}
			if next.After(s.now) {
				s.now = next
			}
		}
		s.now = until
		return nil
	},
	"restart":    func(s *stage, _ string, _ words) []string { s.start(); return nil },
	"compact":    func(s *stage, _ string, _ words) []string { s.facts.Compact(); return nil },
	"disk-full":  func(s *stage, _ string, _ words) []string { s.facts.Refuse(errors.New("disk full")); return nil },
	"disk-empty": func(s *stage, _ string, _ words) []string { s.facts.Refuse(nil); return nil },
	"join":       performJoin,
	"sync":       performSync,
	"heartbeat": func(s *stage, name string, w words) []string {
		ask(s, name, func(p *machine.Promise[struct{}]) Command {
			return Heartbeat{Group: s.group, Caller: w.caller(), Reply: p}
		}, showNothing)
		return nil
	},
	"leave": func(s *stage, name string, w words) []string {
		var members []Leaving
		for _, m := range w.plain {
			id, instance, _ := strings.Cut(m, "/")
			members = append(members, Leaving{Member: id, Instance: instance})
		}
		ask(s, name, func(p *machine.Promise[[]error]) Command {
			return LeaveGroup{Group: s.group, Members: members, Reply: p}
		}, showErrors)
		return nil
	},
	"attach": func(s *stage, name string, w words) []string {
		ask(s, name, func(p *machine.Promise[struct{}]) Command {
			return Attach{
				Group: s.group, Member: w.named["id"], Topics: w.plain, Session: w.duration("session", 30*time.Second), Reply: p,
			}
		}, showNothing)
		return nil
	},
	"commit":         performCommit,
	"fetch":          performFetch,
	"end":            performEnd,
	"nack":           performNack,
	"delete-offsets": performDeleteOffsets,
	"drop-topic": func(s *stage, name string, w words) []string {
		topic, id := parseTopic(w.plain[0])
		ask(s, name, func(p *machine.Promise[struct{}]) Command {
			return DropTopic{Topic: topic, ID: id, Reply: p}
		}, showNothing)
		return nil
	},
	"delete": func(s *stage, name string, _ words) []string {
		ask(s, name, func(p *machine.Promise[struct{}]) Command {
			return DeleteGroup{Group: s.group, Reply: p}
		}, showNothing)
		return nil
	},
	"describe": func(s *stage, name string, _ words) []string {
		ask(s, name, func(p *machine.Promise[Description]) Command {
			return DescribeGroup{Group: s.group, Reply: p}
		}, func(d Description) string {
			text := fmt.Sprintf("%s type=%q protocol=%q", d.State, d.ProtocolType, d.Protocol)
			for _, m := range d.Members {
				text += fmt.Sprintf(" [%s %q %q->%q]", m.ID, m.Instance, m.Metadata, m.Assignment)
			}
			return text
		})
		return nil
	},
	"list": func(s *stage, name string, _ words) []string {
		ask(s, name, func(p *machine.Promise[[]Listing]) Command { return ListGroups{Reply: p} },
			func(all []Listing) string {
				text := fmt.Sprint(len(all), " groups")
				for _, l := range all {
					text += fmt.Sprintf(" [%s %q %s %d]", l.ID, l.ProtocolType, l.State, l.Members)
				}
				return text
			})
		return nil
	},
}

func performJoin(s *stage, name string, w words) []string {
	var protocols []Protocol
	for p := range strings.SplitSeq(w.named["offers"], ",") {
		if protocol, metadata, _ := strings.Cut(p, ":"); protocol != "" {
			protocols = append(protocols, Protocol{Name: protocol, Metadata: []byte(metadata)})
		}
	}
	if topics, ok := w.named["topics"]; ok {
		protocols = []Protocol{{Name: "range", Metadata: EncodeSubscription(strings.Split(topics, ","))}}
	}
	if protocols == nil && w.named["offers"] != "none" {
		protocols = []Protocol{{Name: "range", Metadata: []byte("any")}}
	}
	kind := "consumer"
	if k, ok := w.named["type"]; ok {
		kind = k
	}
	ask(s, name, func(p *machine.Promise[JoinResult]) Command {
		return JoinGroup{
			Group: s.group, Member: w.named["id"], NewMember: w.named["new"], Instance: w.named["instance"],
			ProtocolType: kind, Protocols: protocols,
			SessionTimeout: w.duration("session", 10*time.Second), RebalanceTimeout: w.duration("rebalance", time.Minute),
			RequireKnownMember: w.has("two-step"), CanSkipAssignment: w.has("v9"), Reply: p,
		}
	}, func(r JoinResult) string {
		text := fmt.Sprintf("%s is in generation %d of %s/%s, led by %s", r.Member, r.Generation, r.ProtocolType, r.Protocol, r.Leader)
		for _, m := range r.Members {
			text += fmt.Sprintf(" [%s %q %q]", m.ID, m.Instance, m.Metadata)
		}
		if r.SkipAssignment {
			text += " skip the assignment"
		}
		return text
	})
	return nil
}

func performSync(s *stage, name string, w words) []string {
	assignments := map[string][]byte{}
	for pair := range strings.SplitSeq(w.named["assign"], ",") {
		if id, what, ok := strings.Cut(pair, ":"); ok {
			assignments[id] = []byte(what)
		}
	}
	ask(s, name, func(p *machine.Promise[SyncResult]) Command {
		return SyncGroup{
			Group: s.group, Caller: w.caller(), ProtocolType: w.named["type"], Protocol: w.named["protocol"],
			Assignments: assignments, Reply: p,
		}
	}, func(r SyncResult) string {
		return fmt.Sprintf("reads %q by %s/%s", r.Assignment, r.ProtocolType, r.Protocol)
	})
	return nil
}

// parseTopic reads name or name#digit; the digit makes a topic id.
func parseTopic(s string) (string, model.TopicID) {
	name, n, ok := strings.Cut(s, "#")
	var id model.TopicID
	if ok {
		id[15] = n[0]
	}
	return name, id
}

// parsePartition reads topic/partition and what follows an equals sign.
func parsePartition(s string) (PartitionOf, string) {
	where, value, _ := strings.Cut(s, "=")
	topic, partition, ok := strings.Cut(where, "/")
	if !ok {
		panic("no partition in " + s)
	}
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		panic(err)
	}
	p := PartitionOf{Partition: int32(n)}
	p.Topic, p.TopicID = parseTopic(topic)
	return p, value
}

func (w words) partitions() (parsed []PartitionOf, values []string) {
	for _, s := range w.plain {
		if strings.Contains(s, "/") {
			p, v := parsePartition(s)
			parsed, values = append(parsed, p), append(values, v)
		}
	}
	return parsed, values
}

func performCommit(s *stage, name string, w words) []string {
	var commits []Commit
	partitions, values := w.partitions()
	for i, p := range partitions {
		offset, metadata, _ := strings.Cut(values[i], "@")
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			panic(err)
		}
		commits = append(commits, Commit{
			Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Offset: model.Offset(n),
			LeaderEpoch: model.LeaderEpoch(w.number("epoch", -1)), Metadata: metadata,
		})
	}
	c := CommitOffsets{Group: s.group, Caller: w.caller(), Offsets: commits, Retention: w.duration("keep", -1)}
	if pid := w.number("pid", -1); pid >= 0 {
		c.Producer = &model.ProducerIdentity{ID: model.ProducerID(pid)}
	}
	ask(s, name, func(p *machine.Promise[[]error]) Command { c.Reply = p; return c }, showErrors)
	return nil
}

func performFetch(s *stage, name string, w words) []string {
	partitions, _ := w.partitions()
	ask(s, name, func(p *machine.Promise[[]Committed]) Command {
		return FetchOffsets{Group: s.group, Partitions: partitions, Stable: w.has("stable"), Reply: p}
	}, func(all []Committed) string {
		if len(all) == 0 {
			return "nothing"
		}
		var text []string
		for _, c := range all {
			one := fmt.Sprintf("%s/%d=%d", c.Topic, c.Partition, c.Offset)
			if c.Metadata != "" {
				one += "@" + c.Metadata
			}
			if c.LeaderEpoch != model.NoLeaderEpoch {
				one += fmt.Sprintf(" epoch %d", c.LeaderEpoch)
			}
			if c.Err != nil {
				one += " " + c.Err.Error()
			}
			text = append(text, one)
		}
		return strings.Join(text, ", ")
	})
	return nil
}

// performEnd is a transaction coordinator: it appends the marker and lets the
// shard see it.
func performEnd(s *stage, _ string, w words) []string {
	producer := model.ProducerIdentity{ID: model.ProducerID(w.number("pid", 0))}
	outcome := machine.Abort
	if w.has("commit") {
		outcome = machine.Commit
	}
	h, err := s.shard.Hold()
	if err != nil {
		return []string{err.Error()}
	}
	defer h.Release()
	at := s.facts.AppendMarker(producer, outcome)
	h.Adopt(at.Pending, at.Base, TransactionEnded(producer.ID, outcome == machine.Commit))
	return nil
}

func performNack(s *stage, name string, w words) []string {
	partitions, values := w.partitions()
	offset, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		panic(err)
	}
	var effects []string
	p := machine.NewPromise[Verdict]()
	err = s.shard.RunWith(Nack{
		Group: s.group, Caller: w.caller(), Partition: partitions[0], Offset: model.Offset(offset),
		Deliveries: int32(w.number("max", 3)), Reply: p,
	}, func(b machine.Batch) (machine.Sequenced, error) {
		for _, e := range b.Effects {
			dead := e.(DeadLetter)
			effects = append(effects, fmt.Sprintf("effect: %s/%d offset %d is dead after %d attempts",
				dead.Partition.Topic, dead.Partition.Partition, dead.Offset, dead.Attempts))
		}
		return s.facts.Append(b)
	})
	if err != nil {
		return []string{name + ": refused: " + err.Error()}
	}
	f := p.Future()
	s.waiting = append(s.waiting, call{name, f.Answered(), func() string {
		v, err := f.Wait(context.Background())
		if err != nil {
			return "refused: " + err.Error()
		}
		return fmt.Sprintf("attempt %d, dead %t, next %d", v.Attempts, v.Dead, v.Next)
	}})
	return effects
}

func performDeleteOffsets(s *stage, name string, w words) []string {
	partitions, _ := w.partitions()
	ask(s, name, func(p *machine.Promise[[]error]) Command {
		return DeleteOffsets{Group: s.group, Partitions: partitions, Reply: p}
	}, showErrors)
	return nil
}

func showNothing(struct{}) string { return "done" }

func showErrors(errs []error) string {
	var text []string
	for _, err := range errs {
		if err == nil {
			text = append(text, "ok")
		} else {
			text = append(text, err.Error())
		}
	}
	return strings.Join(text, ", ")
}

// state describes the group in question in one line.
func (s *stage) state() string {
	if s.live == nil {
		return "= not loaded"
	}
	g := s.live.groups[s.group]
	if g == nil {
		return "= no group"
	}
	text := fmt.Sprintf("= %s, generation %d", g.state, g.generation)
	if g.leader != "" {
		text += ", led by " + g.leader
	}
	for _, m := range g.ordered() {
		text += " " + m.id
		if m.join != nil {
			text += "(joining)"
		}
		if m.sync != nil {
			text += "(syncing)"
		}
	}
	for _, id := range sortedKeys(g.unconfirmed) {
		text += " " + id + "(expected)"
	}
	return text
}
