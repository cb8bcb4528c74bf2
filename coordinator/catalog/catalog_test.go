package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// world is a catalog on a facts log in memory.
type world struct {
	t        *testing.T
	static   *config.Static
	facts    *machine.MemoryFacts
	shard    *machine.Shard[Command, Fact]
	snapshot atomic.Pointer[Snapshot]
	effects  []machine.Effect
}

func newWorld(t *testing.T, set ...string) *world {
	t.Helper()
	loaded, err := config.Load(config.Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, static: loaded.Static, facts: &machine.MemoryFacts{}}
	w.restart()
	ask(w, func(p *machine.Promise[struct{}]) Command { return Begin{TransactionVersion: 2, To: p} })
	return w
}

// restart forgets everything but the log.
func (w *world) restart() {
	w.shard = machine.NewShard(machine.Options[Command, Fact]{
		Name:  "catalog",
		Codec: Codec{}, Facts: w.facts,
		Now: func() time.Time { return time.UnixMilli(1700000000000) },
		New: func() machine.Machine[Command, Fact] {
			b, err := config.NewBroker(config.Values{Static: w.static})
			if err != nil {
				w.t.Fatal(err)
			}
			return New(w.static, b, &w.snapshot)
		},
	})
	if err := w.shard.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func ask[T any](w *world, build func(*machine.Promise[T]) Command) T {
	w.t.Helper()
	v, err := try(w, build)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func try[T any](w *world, build func(*machine.Promise[T]) Command) (T, error) {
	sequence := func(b machine.Batch) (machine.Sequenced, error) {
		w.effects = append(w.effects, b.Effects...)
		return w.facts.Append(b)
	}
	return machine.CallWith(w.shard, sequence, build).Wait(context.Background())
}

// newTopic is a topic with the given settings, written key=value.
func newTopic(name string, partitions int32, settings ...string) NewTopic {
	t := NewTopic{ID: model.NewTopicID(), Name: name, Partitions: partitions, ReplicationFactor: 1, Settings: map[string]string{}}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		t.Settings[key] = value
	}
	return t
}

func (w *world) create(topics ...NewTopic) []CreatedTopic {
	w.t.Helper()
	return ask(w, func(p *machine.Promise[[]CreatedTopic]) Command {
		return CreateTopics{Topics: topics, NodeID: 1, To: p}
	})
}

func (w *world) alter(changes ...ConfigChange) []error {
	w.t.Helper()
	return ask(w, func(p *machine.Promise[[]error]) Command { return AlterConfigs{Resources: changes, NodeID: 1, To: p} })
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func pointer(s string) *string { return &s }

func TestCreateTopics(t *testing.T) {
	with := func(change func(*NewTopic)) NewTopic {
		n := newTopic("new", 1)
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		set   []string
		topic NewTopic
		kind  error
		text  string
	}{
		"plain":                    {topic: newTopic("new", 3)},
		"every letter":             {topic: newTopic("aZ09._-", 1)},
		"longest name":             {topic: newTopic(strings.Repeat("x", 249), 1)},
		"name too long":            {topic: newTopic(strings.Repeat("x", 250), 1), kind: ErrInvalidTopicName, text: "Topic name is invalid: the length of '" + strings.Repeat("x", 250) + "' is longer than the max allowed length 249"},
		"empty name":               {topic: newTopic("", 1), kind: ErrInvalidTopicName, text: "Topic name is invalid: the empty string is not allowed"},
		"dot":                      {topic: newTopic(".", 1), kind: ErrInvalidTopicName, text: "Topic name is invalid: '.' is not allowed"},
		"two dots":                 {topic: newTopic("..", 1), kind: ErrInvalidTopicName, text: "Topic name is invalid: '..' is not allowed"},
		"slash":                    {topic: newTopic("a/b", 1), kind: ErrInvalidTopicName, text: "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		"exists":                   {topic: newTopic("old.topic", 1), kind: ErrTopicExists, text: "Topic 'old.topic' already exists."},
		"collides":                 {topic: newTopic("old_topic", 1), kind: ErrInvalidTopicName, text: "Topic 'old_topic' collides with existing topic: old.topic"},
		"the broker's own":         {topic: newTopic("__consumer_offsets", 1), kind: ErrTopicExists, text: "Topic '__consumer_offsets' already exists."},
		"Kafka's own":              {topic: newTopic("__cluster_metadata", 1), kind: ErrInternalTopic, text: "Creation of internal topic __cluster_metadata is prohibited."},
		"a tool's two underscores": {topic: newTopic("__CruiseControlMetrics", 1)},
		"no partitions":            {topic: newTopic("new", 0), kind: ErrInvalidPartitions, text: "Number of partitions was set to an invalid non-positive value."},
		"default partitions":       {topic: newTopic("new", -1)},
		"too many partitions":      {topic: newTopic("new", 10_001), kind: ErrInvalidPartitions, text: "A topic can have at most 10000 partitions."},
		"neither of them":          {topic: with(func(n *NewTopic) { n.Partitions, n.ReplicationFactor = 0, 0 }), kind: ErrInvalidReplicationFactor, text: "Replication factor must be larger than 0, or -1 to use the default value."},
		"no replicas":              {topic: with(func(n *NewTopic) { n.ReplicationFactor = 0 }), kind: ErrInvalidReplicationFactor, text: "Replication factor must be larger than 0, or -1 to use the default value."},
		"three replicas":           {topic: with(func(n *NewTopic) { n.ReplicationFactor = 3 })},
		"three replicas, strict":   {set: []string{"perigee.strict=true"}, topic: with(func(n *NewTopic) { n.ReplicationFactor = 3 }), kind: ErrInvalidReplicationFactor, text: "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered."},
		"unknown setting":          {topic: newTopic("new", 1, "retention.msec=1"), kind: ErrInvalidConfig, text: "Unknown topic config name: retention.msec"},
		"bad value":                {topic: newTopic("new", 1, "retention.ms=-5"), kind: ErrInvalidConfig, text: "Invalid value -5 for configuration retention.ms: Value must be at least -1"},
		"setting of Kafka 3":       {topic: newTopic("new", 1, "message.format.version=2.8")},
		"of Kafka 3, strict":       {set: []string{"perigee.strict=true"}, topic: newTopic("new", 1, "message.format.version=2.8"), kind: ErrInvalidConfig, text: "Unknown topic config name: message.format.version"},
		"assigned to us": {topic: with(func(n *NewTopic) {
			n.Partitions, n.ReplicationFactor, n.Assignments = -1, -1, map[int32][]int32{0: {1}, 1: {1}}
		})},
		"assigned with a gap": {topic: with(func(n *NewTopic) {
			n.Partitions, n.ReplicationFactor, n.Assignments = -1, -1, map[int32][]int32{0: {1}, 2: {1}}
		}), kind: ErrInvalidReplicaAssignment, text: "partitions should be a consecutive 0-based integer sequence"},
		"assigned to a stranger": {topic: with(func(n *NewTopic) {
			n.Partitions, n.ReplicationFactor, n.Assignments = -1, -1, map[int32][]int32{0: {2}}
		}), kind: ErrInvalidReplicaAssignment, text: "The manual partition assignment includes broker 2, but no such broker is registered."},
		"assigned and counted":      {topic: with(func(n *NewTopic) { n.ReplicationFactor, n.Assignments = -1, map[int32][]int32{0: {1}} }), kind: ErrInvalidRequest, text: "A manual partition assignment was specified, but numPartitions was not set to -1."},
		"assigned and replicated":   {topic: with(func(n *NewTopic) { n.Assignments = map[int32][]int32{0: {1}} }), kind: ErrInvalidRequest, text: "A manual partition assignment was specified, but replication factor was not set to -1."},
		"contradicting compaction":  {topic: newTopic("new", 1, "min.compaction.lag.ms=5", "max.compaction.lag.ms=4"), kind: ErrInvalidConfig, text: "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"},
		"remote storage is refused": {topic: newTopic("new", 1, "remote.storage.enable=true"), kind: ErrInvalidConfig, text: "Invalid value true for configuration remote.storage.enable: not supported by this broker"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(c.set, "num.partitions=2")...)
			w.create(newTopic("old.topic", 1))
			got := w.create(c.topic)[0]
			if text(got.Err) != c.text || !errors.Is(got.Err, c.kind) {
				t.Fatalf("error %q (%v), want %q", text(got.Err), errors.Unwrap(got.Err), c.text)
			}
			found, ok := w.snapshot.Load().Topic(c.topic.Name)
			if c.kind != nil {
				if ok && found.ID == c.topic.ID {
					t.Error("the topic exists although it was refused")
				}
				return
			}
			if !ok || found.ID != c.topic.ID {
				t.Fatal("the topic does not exist")
			}
			if byID, ok := w.snapshot.Load().TopicByID(c.topic.ID); !ok || byID != found {
				t.Error("the topic is not found by its id")
			}
		})
	}
}

func TestOneBadTopicDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	results := w.create(newTopic("a", 1), newTopic("b", 1, "retention.ms=x"), newTopic("c", 1), newTopic("d", 1), newTopic("d", 1), newTopic("e.1", 1), newTopic("e_1", 1))
	var names []string
	for _, topic := range w.snapshot.Load().Topics() {
		if !topic.Internal {
			names = append(names, topic.Name)
		}
	}
	if diff := cmp.Diff([]string{"a", "c", "e.1"}, names); diff != "" {
		t.Error(diff)
	}
	for i, kind := range []error{nil, ErrInvalidConfig, nil, ErrInvalidRequest, ErrInvalidRequest, nil, ErrInvalidTopicName} {
		if !errors.Is(results[i].Err, kind) {
			t.Errorf("topic %d: %v, want %v", i, results[i].Err, kind)
		}
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.create(newTopic("old", 1))
	before := len(w.facts.Records())
	created := ask(w, func(p *machine.Promise[[]CreatedTopic]) Command {
		return CreateTopics{Topics: []NewTopic{newTopic("new", 4, "retention.ms=9")}, ValidateOnly: true, NodeID: 1, To: p}
	})[0]
	if created.Err != nil || created.Topic.Partitions != 4 || created.Topic.Settings.RetentionAge != 9*time.Millisecond {
		t.Errorf("answer is %+v, %v", created.Topic, created.Err)
	}
	ask(w, func(p *machine.Promise[[]error]) Command {
		return CreatePartitions{Topics: []Growth{{Name: "old", Count: 9}}, ValidateOnly: true, To: p}
	})
	ask(w, func(p *machine.Promise[[]error]) Command {
		return AlterConfigs{Resources: []ConfigChange{{Type: config.ResourceTopic, Name: "old", Changes: []Alteration{{Name: "retention.ms", Value: pointer("1")}}}}, ValidateOnly: true, To: p}
	})
	if after := len(w.facts.Records()); after != before {
		t.Errorf("%d facts were journaled", after-before)
	}
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t)
	created := w.create(newTopic("a", 1), newTopic("b", 1), newTopic("c", 1))
	remove := func(refs ...TopicRef) []DeletedTopic {
		return ask(w, func(p *machine.Promise[[]DeletedTopic]) Command { return DeleteTopics{Topics: refs, To: p} })
	}
	results := remove(TopicRef{Name: "a"}, TopicRef{ID: created[1].Topic.ID}, TopicRef{Name: "nobody"}, TopicRef{ID: model.NewTopicID()},
		TopicRef{Name: "c"}, TopicRef{ID: created[2].Topic.ID}, TopicRef{Name: CatalogTopic}, TopicRef{})
	for i, kind := range []error{nil, nil, ErrUnknownTopic, ErrUnknownTopicID, ErrInvalidRequest, ErrInvalidRequest, ErrInternalTopic, ErrUnknownTopic} {
		if !errors.Is(results[i].Err, kind) {
			t.Errorf("%d: %v, want %v", i, results[i].Err, kind)
		}
	}
	if left := w.snapshot.Load().Len() - len(internalTopics); left != 1 {
		t.Errorf("%d topics are left, want c", left)
	}
	again := newTopic("a", 1)
	if r := w.create(again)[0]; r.Err != nil || r.Topic.ID == created[0].Topic.ID {
		t.Errorf("created again: %v, same id: %v", r.Err, r.Topic.ID == created[0].Topic.ID)
	}
	if r := w.create(newTopic("b", 1))[0]; r.Err != nil {
		t.Errorf("a deleted name still collides: %v", r.Err)
	}

	closed := newWorld(t, "delete.topic.enable=false")
	closed.create(newTopic("a", 1))
	if r := ask(closed, func(p *machine.Promise[[]DeletedTopic]) Command {
		return DeleteTopics{Topics: []TopicRef{{Name: "a"}}, To: p}
	})[0]; !errors.Is(r.Err, ErrDeletionDisabled) {
		t.Errorf("deletion is disabled: %v", r.Err)
	}
}

func TestCreatePartitions(t *testing.T) {
	for name, c := range map[string]struct {
		growth Growth
		want   string
	}{
		"more":               {Growth{Name: "t", Count: 5}, ""},
		"more, assigned":     {Growth{Name: "t", Count: 4, Assignments: [][]int32{{1}}}, ""},
		"the same":           {Growth{Name: "t", Count: 3}, "Topic already has 3 partition(s)."},
		"fewer":              {Growth{Name: "t", Count: 2}, "The topic t currently has 3 partition(s); 2 would not be an increase."},
		"unknown":            {Growth{Name: "nobody", Count: 2}, "no such topic"},
		"too many":           {Growth{Name: "t", Count: 20_000}, "A topic can have at most 10000 partitions."},
		"too few assigned":   {Growth{Name: "t", Count: 5, Assignments: [][]int32{{1}}}, "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."},
		"none assigned":      {Growth{Name: "t", Count: 4, Assignments: [][]int32{}}, "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."},
		"assigned elsewhere": {Growth{Name: "t", Count: 4, Assignments: [][]int32{{7}}}, "The manual partition assignment includes broker 7, but no such broker is registered."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(newTopic("t", 3))
			w.effects = nil
			err := ask(w, func(p *machine.Promise[[]error]) Command {
				return CreatePartitions{Topics: []Growth{c.growth}, NodeID: 1, To: p}
			})[0]
			topic, _ := w.snapshot.Load().Topic("t")
			if text(err) != c.want {
				t.Errorf("%q, want %q", text(err), c.want)
			}
			want := int32(3)
			if c.want == "" {
				want = c.growth.Count
				if e := w.effects[0].(OpenPartitions); e.From != 3 || e.Topic.Partitions != want {
					t.Errorf("effect is %+v", e)
				}
			}
			if topic.Partitions != want {
				t.Errorf("%d partitions, want %d", topic.Partitions, want)
			}
		})
	}
}

// A request makes no more partitions than one topic may have, however many topics it names.
func TestARequestIsBounded(t *testing.T) {
	w := newWorld(t)
	w.create(newTopic("a", 1), newTopic("b", 1))
	grown := ask(w, func(p *machine.Promise[[]error]) Command {
		return CreatePartitions{Topics: []Growth{{Name: "a", Count: 6001}, {Name: "b", Count: 4002}}, NodeID: 1, To: p}
	})
	if grown[0] != nil || !errors.Is(grown[1], ErrPolicy) {
		t.Errorf("6000 partitions more: %v; 4001 more: %v, want ErrPolicy", grown[0], grown[1])
	}
	made := w.create(newTopic("c", 6000), newTopic("d", 4001))
	if made[0].Err != nil || !errors.Is(made[1].Err, ErrPolicy) {
		t.Errorf("6000 new partitions: %v; 4001 new: %v, want ErrPolicy", made[0].Err, made[1].Err)
	}
}

func TestRules(t *testing.T) {
	w := newWorld(t)
	now := model.Timestamp(1_000_000)
	r := w.create(
		newTopic("plain", 1, "message.timestamp.before.max.ms=1000", "message.timestamp.after.max.ms=2000", "max.message.bytes=0"),
		newTopic("stamped", 1, "message.timestamp.type=LogAppendTime", "compression.type=gzip", "compression.gzip.level=2", "cleanup.policy=compact"))
	plain := batch.Rules{MaxBatchBytes: 1, MaxDecompressedBytes: 2147483639, TimestampMin: now - 1000, TimestampMax: now + 2000}
	if diff := cmp.Diff(plain, r[0].Topic.Rules(now)); diff != "" {
		t.Error(diff)
	}
	stamped := batch.Rules{MaxBatchBytes: 1048588, MaxDecompressedBytes: 2147483639, AppendTime: now, KeyNeeded: true, Recompress: &batch.Codec{Compression: batch.Gzip, Level: 2}}
	if diff := cmp.Diff(stamped, r[1].Topic.Rules(now)); diff != "" {
		t.Error(diff)
	}
}

func TestUpdateFeatures(t *testing.T) {
	w := newWorld(t)
	update := func(updates ...FeatureUpdate) []error {
		return ask(w, func(p *machine.Promise[[]error]) Command { return UpdateFeatures{Updates: updates, NodeID: 1, To: p} })
	}
	for _, c := range []struct {
		update FeatureUpdate
		want   string
		level  int16
		epoch  int64
	}{
		{FeatureUpdate{Name: TransactionVersion, Level: 2}, "", 2, 1},
		{FeatureUpdate{Name: TransactionVersion, Level: 3}, "Invalid update version 3 for feature transaction.version. Local controller 1 only supports versions 0-2", 2, 1},
		{FeatureUpdate{Name: TransactionVersion, Level: 1}, "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.", 2, 1},
		{FeatureUpdate{Name: TransactionVersion, Level: 1, Downgrade: true}, "", 1, 2},
		{FeatureUpdate{Name: TransactionVersion, Level: 0, Downgrade: true}, "", 0, 3},
		{FeatureUpdate{Name: "metadata.version", Level: 20, Downgrade: true}, "Invalid update version 20 for feature metadata.version. It stays at 33 on this broker.", 0, 3},
		{FeatureUpdate{Name: "share.version", Level: 1}, "Invalid update version 1 for feature share.version. Local controller 1 does not support this feature.", 0, 3},
		{FeatureUpdate{Name: TransactionVersion, Level: 2}, "", 2, 4},
	} {
		err := update(c.update)[0]
		f := w.snapshot.Load().Features()
		if text(err) != c.want || f.Level(TransactionVersion) != c.level || f.Epoch != c.epoch {
			t.Errorf("%+v: %q, level %d, epoch %d; want %q, %d, %d", c.update, text(err), f.Level(TransactionVersion), f.Epoch, c.want, c.level, c.epoch)
		}
	}
	if errs := update(FeatureUpdate{Name: TransactionVersion, Level: 1, Downgrade: true}, FeatureUpdate{Name: "nope", Level: 1}); errs[0] != nil || errs[1] == nil {
		t.Errorf("answers are %v", errs)
	}
	if f := w.snapshot.Load().Features(); f.Level(TransactionVersion) != 2 || f.Epoch != 4 {
		t.Errorf("half of the updates were made: %+v", f)
	}
}

func TestProducerIDsAreNeverHandedOutTwice(t *testing.T) {
	w := newWorld(t)
	take := func(n int64) (model.ProducerID, error) {
		return try(w, func(p *machine.Promise[model.ProducerID]) Command { return AllocateProducerIDs{Count: n, To: p} })
	}
	for _, want := range []model.ProducerID{1, 1001, 2001} {
		if got, err := take(1000); got != want || err != nil {
			t.Errorf("first id is %d, %v; want %d", got, err, want)
		}
		w.restart()
	}
	refused := errors.New("disk is full")
	w.facts.Refuse(refused)
	if _, err := take(1000); !errors.Is(err, refused) {
		t.Errorf("refused by the log: %v", err)
	}
	w.facts.Refuse(nil)
	if got, _ := take(1000); got != 3001 {
		t.Errorf("first id is %d, want 3001: nothing was journaled in between", got)
	}
	if _, err := take(1<<63 - 1); !errors.Is(err, ErrProducerIDsExhausted) {
		t.Errorf("beyond the last id: %v", err)
	}
}

// Whatever happened, a restart sees the same catalog, also from a compacted log.
func TestReplayGivesTheSameSnapshot(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		w.create(newTopic(fmt.Sprintf("topic-%d", i), int32(i%5+1), fmt.Sprintf("retention.ms=%d", i)))
	}
	for i := range 10 {
		ask(w, func(p *machine.Promise[[]DeletedTopic]) Command {
			return DeleteTopics{Topics: []TopicRef{{Name: fmt.Sprintf("topic-%d", i*3)}}, To: p}
		})
	}
	w.alter(ConfigChange{Type: config.ResourceBroker, Changes: []Alteration{{OpSet, "log.segment.bytes", pointer("2000000")}}},
		ConfigChange{Type: config.ResourceBroker, Name: "1", Changes: []Alteration{{OpSet, "max.connections", pointer("7")}}},
		ConfigChange{Type: config.ResourceGroup, Name: "g", Changes: []Alteration{{OpSet, "consumer.session.timeout.ms", pointer("46000")}}},
		ConfigChange{Type: config.ResourceClientMetrics, Name: "m", Changes: []Alteration{{OpSet, "interval.ms", pointer("1000")}}})
	live := describe(w.snapshot.Load())
	w.restart()
	if diff := cmp.Diff(live, describe(w.snapshot.Load())); diff != "" {
		t.Error(diff)
	}
	w.facts.Compact()
	w.restart()
	if diff := cmp.Diff(live, describe(w.snapshot.Load())); diff != "" {
		t.Error(diff)
	}
}

// describe prints everything a snapshot shows.
func describe(s *Snapshot) []string {
	var lines []string
	for _, t := range s.Topics() {
		byID, _ := s.TopicByID(t.ID)
		lines = append(lines, fmt.Sprintf("%s %s %d %v %d %v %+v %+v", t.Name, t.ID, t.Partitions, t.Internal, t.Created, t.Overrides, t.Log, byID.Settings))
	}
	return append(lines, fmt.Sprintf("%+v", s.Features()), fmt.Sprintf("%+v", s.Broker().Network), fmt.Sprint(s.Values().ClusterDefault, s.Values().ThisBroker),
		fmt.Sprint(s.GroupsWithSettings(), s.GroupSettings("g")), fmt.Sprint(s.ClientMetricsNames(), s.ClientMetrics("m")))
}

func TestIndexAgainstAMap(t *testing.T) {
	var x index[int, int]
	naive := map[int]int{}
	for i := range 2000 {
		k := i * 7919 % 613
		if i%3 == 0 {
			x = x.without(k)
			delete(naive, k)
		} else {
			x = x.with(k, i)
			naive[k] = i
		}
	}
	got := map[int]int{}
	for k, v := range x.all() {
		got[k] = v
	}
	if diff := cmp.Diff(naive, got); diff != "" || x.size != len(naive) {
		t.Error(x.size, diff)
	}
	old := x
	x = x.with(-1, 1)
	if _, ok := old.get(-1); ok {
		t.Error("an old index sees a later change")
	}
}

func FuzzDecode(f *testing.F) {
	for _, fact := range []Fact{
		topicFact{ID: model.NewTopicID(), Name: "t", Partitions: 3, Overrides: map[string]string{"retention.ms": "5"}},
		settingsFact{config.ResourceBroker, "", map[string]string{"num.partitions": "2"}},
		featuresFact{initialFeatures(2)}, producerIDsFact{7},
		credentialFact{Credential: Credential{User: "u", Mechanism: ScramSHA512, Salt: []byte("s")}},
		aclFact{ACL: ACL{ResourceName: "n", Principal: "p", Host: "*"}},
		quotaFact{Entity: QuotaEntity{{Type: "user", Default: true}}, Values: map[string]float64{"x": 1}},
	} {
		key, value := fact.encode()
		f.Add(key, value)
		f.Add(key, []byte(nil))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(value) == 0 {
			value = nil
		}
		fact, err := Codec{}.Decode(machine.Record{Key: key, Value: value})
		if err != nil {
			return
		}
		k, v := fact.encode()
		again, err := Codec{}.Decode(machine.Record{Key: k, Value: v})
		if err != nil {
			t.Fatalf("%+v does not decode again: %v", fact, err)
		}
		k2, v2 := again.encode()
		if !slices.Equal(k, k2) || !slices.Equal(v, v2) {
			t.Errorf("%+v and %+v are different", fact, again)
		}
	})
}
