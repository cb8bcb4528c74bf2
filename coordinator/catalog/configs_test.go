package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

func TestAlterConfigs(t *testing.T) {
	topic := func(replace bool, changes ...Alteration) ConfigChange {
		return ConfigChange{Type: config.ResourceTopic, Name: "t", Replace: replace, Changes: changes}
	}
	broker := func(name string, changes ...Alteration) ConfigChange {
		return ConfigChange{Type: config.ResourceBroker, Name: name, Changes: changes}
	}
	set := func(name, value string) Alteration { return Alteration{OpSet, name, &value} }
	for name, c := range map[string]struct {
		change ConfigChange
		kind   error
		want   string // the error, or the topic's own settings
	}{
		"set":                       {topic(false, set("retention.ms", "7")), nil, "map[cleanup.policy:compact retention.ms:7]"},
		"replace":                   {topic(true, set("retention.ms", "7")), nil, "map[retention.ms:7]"},
		"delete":                    {topic(false, Alteration{OpDelete, "cleanup.policy", nil}), nil, "map[]"},
		"append":                    {topic(false, Alteration{OpAppend, "cleanup.policy", pointer("delete,compact")}), nil, "map[cleanup.policy:compact,delete]"},
		"subtract":                  {topic(false, Alteration{OpSubtract, "cleanup.policy", pointer("compact")}), nil, "map[cleanup.policy:]"},
		"append to a number":        {topic(false, Alteration{OpAppend, "retention.ms", pointer("7")}), ErrInvalidConfig, "Can't APPEND to key retention.ms because its type is not LIST."},
		"unknown operation":         {topic(false, Alteration{9, "retention.ms", pointer("7")}), ErrInvalidRequest, "Unknown operation type 9"},
		"unknown setting":           {topic(false, set("nope", "1")), ErrInvalidConfig, "Unknown topic config name: nope"},
		"delete unknown setting":    {topic(false, Alteration{OpDelete, "nope", nil}), nil, "map[cleanup.policy:compact]"},
		"null":                      {topic(false, Alteration{OpSet, "retention.ms", nil}), ErrInvalidRequest, "Null value not supported for : retention.ms"},
		"twice":                     {topic(false, set("retention.ms", "7"), set("retention.ms", "8")), ErrInvalidRequest, "Error due to duplicate config keys"},
		"unknown topic":             {ConfigChange{Type: config.ResourceTopic, Name: "nobody"}, ErrUnknownTopic, "The topic 'nobody' does not exist."},
		"every topic":               {ConfigChange{Type: config.ResourceTopic}, ErrInvalidRequest, "Default topic resources are not allowed."},
		"broker":                    {broker("1", set("log.retention.ms", "5")), nil, "map[cleanup.policy:compact]"},
		"all brokers":               {broker("", set("num.partitions", "5")), nil, "map[cleanup.policy:compact]"},
		"retention of nothing":      {broker("", set("log.retention.ms", "0")), ErrInvalidRequest, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		"nobody may connect":        {broker("", set("max.connections.per.ip", "0")), ErrInvalidRequest, "max.connections.per.ip: 0 admits nobody without max.connections.per.ip.overrides"},
		"only some may connect":     {broker("", set("max.connections.per.ip", "0"), set("max.connections.per.ip.overrides", "127.0.0.1:9")), nil, "map[cleanup.policy:compact]"},
		"illegal topic":             {ConfigChange{Type: config.ResourceTopic, Name: "a/b"}, ErrInvalidTopicName, "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		"another broker":            {broker("2", set("num.partitions", "5")), ErrInvalidRequest, "Unexpected broker id, expected 1, but received 2"},
		"broker, only at start":     {broker("1", set("log.dirs", "/x")), ErrInvalidRequest, "Cannot update these configs dynamically: [log.dirs]"},
		"broker, bad value":         {broker("1", set("num.partitions", "0")), ErrInvalidRequest, "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		"broker, unknown":           {broker("1", set("num.partition", "0")), ErrInvalidRequest, "Unknown config name: num.partition"},
		"group":                     {ConfigChange{Type: config.ResourceGroup, Name: "g", Changes: []Alteration{set("consumer.session.timeout.ms", "46000")}}, nil, "map[cleanup.policy:compact]"},
		"group, out of bounds":      {ConfigChange{Type: config.ResourceGroup, Name: "g", Changes: []Alteration{set("consumer.session.timeout.ms", "1")}}, ErrInvalidConfig, "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."},
		"group, unknown":            {ConfigChange{Type: config.ResourceGroup, Name: "g", Changes: []Alteration{set("x", "1")}}, ErrInvalidConfig, "Unknown group config name: x"},
		"client metrics, unknown":   {ConfigChange{Type: config.ResourceClientMetrics, Name: "m", Changes: []Alteration{set("x", "1")}}, ErrInvalidRequest, "Unknown client metrics configuration: x"},
		"broker, not a number":      {broker("x", set("num.partitions", "5")), ErrInvalidRequest, "Node id must be an integer, but it is: x"},
		"every group":               {ConfigChange{Type: config.ResourceGroup}, ErrInvalidRequest, "Default group resources are not allowed."},
		"loggers":                   {ConfigChange{Type: config.ResourceBrokerLogger, Name: "1"}, ErrInvalidRequest, "Unknown resource type 8"},
		"value longer than a fact":  {topic(false, set("leader.replication.throttled.replicas", strings.Repeat("1", 40_000))), ErrInvalidConfig, "Invalid value of 40000 bytes for configuration leader.replication.throttled.replicas: Value must not be longer than 32767 bytes"},
		"gone setting is forgotten": {topic(false, set("message.downconversion.enable", "true")), nil, "map[cleanup.policy:compact]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(newTopic("t", 1, "cleanup.policy=compact"))
			err := w.alter(c.change)[0]
			if !errors.Is(err, c.kind) {
				t.Fatalf("error %v, want %v", err, c.kind)
			}
			got := text(err)
			if err == nil {
				topic, _ := w.snapshot.Load().Topic("t")
				got = fmt.Sprint(topic.Overrides)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	w := newWorld(t)
	w.create(newTopic("t", 1))
	for _, err := range w.alter(topic(false), topic(true)) {
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("a resource stands twice: %v", err)
		}
	}
}

// A broker default changed at run time reaches topics that do not set it.
func TestBrokerDefaultsReachTopics(t *testing.T) {
	w := newWorld(t)
	w.create(newTopic("plain", 1), newTopic("own", 1, "retention.ms=1"))
	w.alter(ConfigChange{Type: config.ResourceBroker, Changes: []Alteration{{OpSet, "log.retention.ms", pointer("99")}, {OpSet, "num.partitions", pointer("6")}}})
	s := w.snapshot.Load()
	plain, _ := s.Topic("plain")
	own, _ := s.Topic("own")
	if plain.Log.RetentionAge != 99*time.Millisecond || own.Log.RetentionAge != time.Millisecond {
		t.Errorf("retention is %s and %s", plain.Log.RetentionAge, own.Log.RetentionAge)
	}
	if byID, _ := s.TopicByID(plain.ID); byID != plain {
		t.Error("the two indexes disagree")
	}
	if r := w.create(newTopic("later", -1))[0]; r.Topic.Partitions != 6 {
		t.Errorf("%d partitions, want the changed default 6", r.Topic.Partitions)
	}
}

// Resources of one request are decided one after the other: each sees what those
// before it make of the broker's settings, and what contradicts them is refused.
func TestResourcesOfOneRequestSeeEachOther(t *testing.T) {
	w := newWorld(t)
	w.create(newTopic("t", 1))
	changes := []ConfigChange{
		{Type: config.ResourceBroker, Changes: []Alteration{
			{OpSet, "log.cleaner.max.compaction.lag.ms", pointer("2000")},
			{OpSet, "log.cleanup.policy", pointer("compact")},
		}},
		{Type: config.ResourceBroker, Name: "1", Changes: []Alteration{{OpAppend, "log.cleanup.policy", pointer("delete")}}},
		{Type: config.ResourceTopic, Name: "t", Changes: []Alteration{{OpSet, "min.compaction.lag.ms", pointer("3000")}}},
	}
	for _, validateOnly := range []bool{true, false} {
		errs := ask(w, func(p *machine.Promise[[]error]) Command {
			return AlterConfigs{Resources: changes, ValidateOnly: validateOnly, NodeID: 1, To: p}
		})
		if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ErrInvalidConfig) {
			t.Errorf("validate only %t: errors %v", validateOnly, errs)
		}
		if v := w.snapshot.Load().Values(); validateOnly && len(v.ClusterDefault) != 0 {
			t.Errorf("validation changed settings: %v", v.ClusterDefault)
		}
	}
	s := w.snapshot.Load()
	if got := s.Values().ThisBroker["log.cleanup.policy"]; got != "compact,delete" {
		t.Errorf("broker 1 appends to what was set for all: policy %q", got)
	}
	if topic, _ := s.Topic("t"); len(topic.Overrides) != 0 || topic.Log.MaxCompactionLag != 2*time.Second {
		t.Errorf("topic settings %v, max lag %v", topic.Overrides, topic.Log.MaxCompactionLag)
	}
}

// Settings read anew reach topics; what clients changed at run time stays
// stronger, and nothing of it is journaled.
func TestReloadedSettingsReachTopics(t *testing.T) {
	w := newWorld(t, "log.retention.ms=5")
	w.create(newTopic("plain", 1))
	w.alter(ConfigChange{Type: config.ResourceBroker, Changes: []Alteration{{OpSet, "num.partitions", pointer("6")}}})
	facts := len(w.facts.Records())
	next, err := config.Load(config.Sources{Set: []string{"log.retention.ms=99", "num.partitions=2"}})
	if err != nil {
		t.Fatal(err)
	}
	w.effects = nil
	ask(w, func(p *machine.Promise[struct{}]) Command { return Reload{Static: next.Static, To: p} })
	plain, _ := w.snapshot.Load().Topic("plain")
	if plain.Log.RetentionAge != 99*time.Millisecond || w.snapshot.Load().Broker().Topics.Partitions != 6 {
		t.Errorf("retention %s, %d partitions", plain.Log.RetentionAge, w.snapshot.Load().Broker().Topics.Partitions)
	}
	if len(w.effects) != 1 || w.effects[0] != (Reconfigure{}) || len(w.facts.Records()) != facts {
		t.Errorf("effects %v, %d facts before and %d after", w.effects, facts, len(w.facts.Records()))
	}
}

// A setting stored by another release does not stop this one.
func TestUnusableSettingsAreLeftOut(t *testing.T) {
	w := newWorld(t)
	key, value := topicFact{ID: model.NewTopicID(), Name: "t", Partitions: 1, Overrides: map[string]string{"retention.ms": "5", "from.the.future": "1", "segment.bytes": "huge"}}.encode()
	if _, err := w.facts.Append(machine.Batch{Records: []machine.Record{{Key: key, Value: value}}}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	topic, _ := w.snapshot.Load().Topic("t")
	if diff := cmp.Diff(map[string]string{"retention.ms": "5"}, topic.Overrides); diff != "" {
		t.Error(diff)
	}
}
