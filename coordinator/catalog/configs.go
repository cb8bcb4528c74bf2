package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
)

// Op is what to do with a setting, numbered as IncrementalAlterConfigs does.
type Op int8

// The operations.
const (
	OpSet      Op = 0
	OpDelete   Op = 1
	OpAppend   Op = 2 // to a list
	OpSubtract Op = 3 // from a list
)

func (o Op) String() string {
	if o < OpSet || o > OpSubtract {
		return strconv.Itoa(int(o))
	}
	return [...]string{"SET", "DELETE", "APPEND", "SUBTRACT"}[o]
}

// Alteration changes one setting.
type Alteration struct {
	Op    Op
	Name  string
	Value *string
}

// ConfigChange changes the settings of one resource.
type ConfigChange struct {
	Type    config.Resource
	Name    string // of a broker: its id, or "" for all brokers
	Replace bool   // the alterations are sets and everything else is forgotten (AlterConfigs)
	Changes []Alteration
}

// AlterConfigs changes settings. One bad resource does not stop the others; each
// is checked against what those before it make of the broker's settings.
type AlterConfigs struct {
	Resources    []ConfigChange
	ValidateOnly bool
	NodeID       int32
	To           *machine.Promise[[]error]
}

func (c AlterConfigs) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var d machine.Decision[Fact]
	results := make([]error, len(c.Resources))
	type resource struct {
		kind config.Resource
		name string
	}
	times := map[resource]int{}
	for _, r := range c.Resources {
		times[resource{r.Type, r.Name}]++
	}
	values := m.snapshot.values
	for i, r := range c.Resources {
		if times[resource{r.Type, r.Name}] > 1 {
			results[i] = &Error{ErrInvalidRequest, "Each resource must appear at most once."}
			continue
		}
		f, effect, err := m.alter(r, c.NodeID, values)
		if results[i] = err; err != nil {
			continue
		}
		if changed, ok := f.(settingsFact); ok && changed.Resource == config.ResourceBroker {
			values = changed.values(values)
		}
		if c.ValidateOnly {
			continue
		}
		d.Facts = append(d.Facts, f)
		if effect != nil {
			d.Effects = append(d.Effects, effect)
		}
	}
	d.Replies = []machine.Reply{machine.Answer(c.To, results)}
	return d
}

// Reload replaces what the broker was started with; what clients changed at run
// time stays stronger. Static must differ only in settings that a running broker
// can change. It is forgotten at the end of the process, as what it replaces is.
type Reload struct {
	Static *config.Static
	To     *machine.Promise[struct{}]
}

func (c Reload) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	f := staticFact{c.Static}
	if _, err := config.NewBroker(f.values(m.snapshot.values)); err != nil {
		return refuse(c.To, &Error{ErrInvalidRequest, err.Error()})
	}
	d := done(c.To, []Fact{f})
	d.Effects = []machine.Effect{Reconfigure{}}
	return d
}

func (f staticFact) values(v config.Values) config.Values {
	v.Static = f.Static
	return v
}

func (f staticFact) apply(m *Machine) { m.setBroker(f.values(m.snapshot.values)) }

// alter decides one resource, with these settings of the broker.
func (m *Machine) alter(c ConfigChange, node int32, values config.Values) (Fact, machine.Effect, error) {
	if err := checkAlterations(c); err != nil {
		return nil, nil, err
	}
	switch c.Type {
	case config.ResourceTopic:
		return m.alterTopic(c, values)
	case config.ResourceBroker:
		return m.alterBroker(c, node, values)
	case config.ResourceGroup:
		return m.alterOther(c, m.snapshot.groups[c.Name], groupRules(values))
	case config.ResourceClientMetrics:
		return m.alterOther(c, m.snapshot.clientMetrics[c.Name], clientMetricsRules(values))
	}
	return nil, nil, &Error{ErrInvalidRequest, fmt.Sprintf("Unknown resource type %d", c.Type)}
}

// checkAlterations refuses what is wrong with any resource.
func checkAlterations(c ConfigChange) error {
	seen := map[string]bool{}
	var nulls []string
	for _, a := range c.Changes {
		if seen[a.Name] {
			return &Error{ErrInvalidRequest, "Error due to duplicate config keys"}
		}
		seen[a.Name] = true
		if a.Op < OpSet || a.Op > OpSubtract {
			return &Error{ErrInvalidRequest, fmt.Sprintf("Unknown operation type %d", a.Op)}
		}
		if a.Value == nil && a.Op != OpDelete {
			nulls = append(nulls, a.Name)
		}
	}
	if nulls != nil {
		return &Error{ErrInvalidRequest, "Null value not supported for : " + strings.Join(nulls, ", ")}
	}
	return nil
}

// changed applies the alterations to a resource's own settings. effective
// tells what a list is before something is appended to it.
func changed(c ConfigChange, table *config.Table, own map[string]string, effective func(*config.Key) string) (map[string]string, error) {
	next := map[string]string{}
	if !c.Replace {
		maps.Copy(next, own)
	}
	for _, a := range c.Changes {
		if a.Op == OpSet {
			next[a.Name] = *a.Value
			continue
		}
		if a.Op == OpDelete {
			delete(next, a.Name)
			continue
		}
		k, ok := table.Key(a.Name)
		if !ok || k.Type != config.List {
			return nil, &Error{ErrInvalidConfig, fmt.Sprintf("Can't %s to key %s because its type is not LIST.", a.Op, a.Name)}
		}
		items, given := config.SplitList(effective(k)), config.SplitList(*a.Value)
		if a.Op == OpSubtract {
			items = slices.DeleteFunc(items, func(item string) bool { return slices.Contains(given, item) })
		} else {
			for _, item := range given {
				if !slices.Contains(items, item) {
					items = append(items, item)
				}
			}
		}
		next[a.Name] = strings.Join(items, ",")
	}
	return next, nil
}

func (m *Machine) alterTopic(c ConfigChange, values config.Values) (Fact, machine.Effect, error) {
	t, ok := m.snapshot.Topic(c.Name)
	switch {
	case c.Name == "":
		return nil, nil, &Error{ErrInvalidRequest, "Default topic resources are not allowed."}
	case !ok && CheckTopicName(c.Name) != nil:
		return nil, nil, CheckTopicName(c.Name)
	case !ok:
		return nil, nil, &Error{ErrUnknownTopic, fmt.Sprintf("The topic '%s' does not exist.", c.Name)}
	case t.Internal:
		return nil, nil, &Error{ErrInternalTopic, fmt.Sprintf("Changing internal topic %s is prohibited.", c.Name)}
	}
	next, err := changed(c, config.TopicTable, t.Overrides, func(k *config.Key) string {
		return values.Topic(k, t.Overrides).Value
	})
	if err != nil {
		return nil, nil, err
	}
	if !m.snapshot.broker.Strict {
		maps.DeleteFunc(next, func(name, _ string) bool { return config.Gone(name) })
	}
	if next, err = config.CheckTopic(values, next); err != nil {
		return nil, nil, &Error{ErrInvalidConfig, err.Error()}
	}
	f := t.fact()
	f.Overrides = next
	return f, Reconfigure{t.ID}, nil
}

func (m *Machine) alterBroker(c ConfigChange, node int32, values config.Values) (Fact, machine.Effect, error) {
	own := values.ClusterDefault
	if c.Name != "" {
		switch id, err := strconv.ParseInt(c.Name, 10, 32); {
		case err != nil:
			return nil, nil, &Error{ErrInvalidRequest, "Node id must be an integer, but it is: " + c.Name}
		case id != int64(node):
			return nil, nil, &Error{ErrInvalidRequest, fmt.Sprintf("Unexpected broker id, expected %d, but received %d", node, id)}
		}
		own = values.ThisBroker
	}
	next, err := changed(c, config.BrokerTable, own, func(k *config.Key) string {
		text, _ := values.Effective(k)
		return text
	})
	if err != nil {
		return nil, nil, err
	}
	if next, err = checkBroker(next, own, c.Name == ""); err != nil {
		return nil, nil, err
	}
	f := settingsFact{config.ResourceBroker, c.Name, next}
	if _, err := config.NewBroker(f.values(values)); err != nil {
		return nil, nil, &Error{ErrInvalidRequest, err.Error()}
	}
	return f, Reconfigure{}, nil
}

// checkBroker refuses settings that a running broker cannot change.
func checkBroker(next, own map[string]string, everyBroker bool) (map[string]string, error) {
	checked, err := config.BrokerTable.Check(next)
	if err != nil {
		return nil, &Error{ErrInvalidRequest, err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(checked)) {
		k, _ := config.BrokerTable.Key(name)
		if before, had := own[name]; had && before == checked[name] {
			continue
		}
		switch {
		case k.ReadOnly():
			return nil, &Error{ErrInvalidRequest, "Cannot update these configs dynamically: [" + name + "]"}
		case k.Update == config.PerBroker && everyBroker:
			return nil, &Error{ErrInvalidRequest, "Cannot update these configs at default cluster level, broker id must be specified: [" + name + "]"}
		}
	}
	return checked, nil
}

// otherRules are what differs between resources that need not exist before they
// have settings.
type otherRules struct {
	what    string
	table   *config.Table
	resolve func(*config.Key, map[string]string) config.Resolved
	check   func(map[string]string) (map[string]string, error)
	unknown string // what Kafka says before an unknown name
	kind    error  // of a refused value
}

func groupRules(v config.Values) otherRules {
	return otherRules{
		what: "group", table: config.GroupTable, resolve: v.Group, unknown: "Unknown group config name: ", kind: ErrInvalidConfig,
		check: func(values map[string]string) (map[string]string, error) { return config.CheckGroup(v, values) },
	}
}

func clientMetricsRules(v config.Values) otherRules {
	return otherRules{
		what: "client metrics", table: config.ClientMetricsTable, resolve: v.ClientMetrics,
		unknown: "Unknown client metrics configuration: ", kind: ErrInvalidRequest, check: config.ClientMetricsTable.Check,
	}
}

func (m *Machine) alterOther(c ConfigChange, own map[string]string, r otherRules) (Fact, machine.Effect, error) {
	if c.Name == "" {
		return nil, nil, &Error{ErrInvalidRequest, fmt.Sprintf("Default %s resources are not allowed.", r.what)}
	}
	if err := checkTexts(r.what, c.Name); err != nil {
		return nil, nil, err
	}
	next, err := changed(c, r.table, own, func(k *config.Key) string { return r.resolve(k, own).Value })
	if err != nil {
		return nil, nil, err
	}
	if next, err = r.check(next); err != nil {
		if unknown, ok := errors.AsType[*config.UnknownKeyError](err); ok {
			return nil, nil, &Error{r.kind, r.unknown + unknown.Name}
		}
		return nil, nil, &Error{r.kind, err.Error()}
	}
	return settingsFact{c.Type, c.Name, next}, nil, nil
}

// values are v with the fact's broker settings in place.
func (f settingsFact) values(v config.Values) config.Values {
	if f.Name == "" {
		v.ClusterDefault = f.Values
	} else {
		v.ThisBroker = f.Values
	}
	return v
}

func (f settingsFact) apply(m *Machine) {
	switch f.Resource {
	case config.ResourceBroker:
		f.Values = config.BrokerTable.Usable(f.Values)
		m.setBroker(f.values(m.snapshot.values))
	case config.ResourceGroup:
		groups := withSettings(m.snapshot.groups, f.Name, config.GroupTable.Usable(f.Values))
		m.edit(func(s *Snapshot) { s.groups = groups })
	case config.ResourceClientMetrics:
		metrics := withSettings(m.snapshot.clientMetrics, f.Name, config.ClientMetricsTable.Usable(f.Values))
		m.edit(func(s *Snapshot) { s.clientMetrics = metrics })
	}
}

func withSettings(all map[string]map[string]string, name string, values map[string]string) map[string]map[string]string {
	next := maps.Clone(all)
	if len(values) == 0 {
		delete(next, name)
	} else {
		next[name] = values
	}
	return next
}

// setBroker takes broker settings and resolves every topic anew. Settings that
// contradict what this start was given, which they did not when they were
// accepted, are left out.
func (m *Machine) setBroker(v config.Values) {
	b, err := config.NewBroker(v)
	if err != nil {
		return
	}
	m.edit(func(s *Snapshot) {
		s.values, s.broker = v, b
		for _, t := range m.snapshot.ids.all() {
			fresh := t.fact().topic(v)
			s.ids, s.names = s.ids.with(t.ID, fresh), s.names.with(t.Name, fresh)
		}
	})
}
