package config

// Setting is a value given at start.
type Setting struct {
	Key    *Key
	Name   string // as it was spelt: the key's name or an alias
	Value  string // canonical
	Origin string // for people: perigee.yaml:12, PERIGEE_NODE_ID, --set
	layer  int    // strength: a higher layer wins also against a more specific synonym
}

// Static is the broker's settings as given at start. The zero value is "nothing
// given": every default.
type Static struct {
	set map[string]Setting // by Key.Name
}

// Lookup returns what was given for a broker setting.
func (s *Static) Lookup(name string) (Setting, bool) {
	if s == nil {
		return Setting{}, false
	}
	v, ok := s.set[name]
	return v, ok
}

// Given returns all that was given, by name.
func (s *Static) Given() []Setting {
	var given []Setting
	if s != nil {
		for _, name := range sortedNames(s.set) {
			given = append(given, s.set[name])
		}
	}
	return given
}

// Reload takes over from next what a running broker can change. It returns the
// new settings, the names of those that changed, and the names of those that are
// written differently now but need a new start. s is left as it was.
func (s *Static) Reload(next *Static) (merged *Static, changed, needStart []string) {
	merged = &Static{set: map[string]Setting{}}
	for _, k := range BrokerTable.Keys() {
		before, had := s.Lookup(k.Name)
		after, has := next.Lookup(k.Name)
		same := had == has && before.Value == after.Value
		switch {
		case !same && k.ReadOnly():
			needStart = append(needStart, k.Name)
			after, has = before, had
		case !same:
			changed = append(changed, k.Name)
		}
		if has {
			merged.set[k.Name] = after
		}
	}
	return merged, changed, needStart
}

// Values are the broker's settings with everything changed at run time. The
// maps hold canonical text by name and must not change while in use.
type Values struct {
	Static         *Static
	ClusterDefault map[string]string // for all brokers
	ThisBroker     map[string]string // for this broker; stronger
}

// Synonym is one place a value could come from.
type Synonym struct {
	Name   string
	Value  string
	Null   bool // sensitive values are not shown
	Source Source
}

// Resolved is a setting's effective value.
type Resolved struct {
	Key      *Key
	Value    string // canonical; in the key's own unit
	Null     bool   // there is no value
	Source   Source
	Synonyms []Synonym // every place that has a value, the deciding one first
}

// Broker resolves a broker setting.
func (v Values) Broker(k *Key) Resolved {
	r := Resolved{Key: k, Value: k.Default, Null: k.Null, Source: SourceDefault}
	r.Synonyms = v.listed(append([]string{k.Name}, k.Fallback...))
	// A setting that is only a more general spelling of another one lends it its
	// effect, not its value: log.retention.ms stays null while hours decide.
	for _, s := range r.Synonyms {
		if s.Name == k.Name {
			r.Value, r.Null, r.Source = s.Value, false, s.Source
			break
		}
	}
	return hide(r)
}

// Effective resolves a broker setting with its fallbacks, converted to the
// key's own unit. ok is false if there is no value anywhere.
func (v Values) Effective(k *Key) (value string, ok bool) {
	names := append([]string{k.Name}, k.Fallback...)
	if found := append(v.synonyms(names), defaults(names...)...); len(found) > 0 {
		return convert(found[0], k), true
	}
	return "", false
}

// Topic resolves a topic setting; overrides are the topic's own values.
func (v Values) Topic(k *Key, overrides map[string]string) Resolved {
	return v.resource(k, overrides, SourceTopic)
}

// Group resolves a setting of a group. Kafka shows a group's own default as a
// synonym where no broker setting stands behind it.
func (v Values) Group(k *Key, overrides map[string]string) Resolved {
	r := v.resource(k, overrides, SourceGroup)
	if k.Fallback == nil {
		r.Synonyms = append(r.Synonyms, Synonym{Name: k.Name, Value: k.Default, Source: SourceDefault})
	}
	return r
}

// ClientMetrics resolves a setting of a client metrics subscription.
func (v Values) ClientMetrics(k *Key, overrides map[string]string) Resolved {
	return v.resource(k, overrides, SourceClientMetrics)
}

func (v Values) resource(k *Key, overrides map[string]string, own Source) Resolved {
	r := Resolved{Key: k, Value: k.Default, Null: k.Null, Source: SourceDefault}
	if text, ok := overrides[k.Name]; ok {
		r.Synonyms = append(r.Synonyms, Synonym{Name: k.Name, Value: text, Source: own})
	}
	if k.Fallback != nil {
		r.Synonyms = append(r.Synonyms, v.listed(k.Fallback)...)
	}
	if len(r.Synonyms) > 0 {
		first := r.Synonyms[0]
		r.Value, r.Null, r.Source = convert(first, k), false, first.Source
	}
	return hide(r)
}

// listed is the synonyms as Kafka lists them. A default that only stands behind
// a more specific setting (log.retention.hours behind log.retention.ms) appears
// when something was given, and not otherwise.
func (v Values) listed(names []string) []Synonym {
	if given := v.synonyms(names); len(given) > 0 {
		return append(given, defaults(names...)...)
	}
	return defaults(names[0])
}

// synonyms lists where the named broker settings have been given values, by
// strength of the source, then in the order of the names.
func (v Values) synonyms(names []string) []Synonym {
	var found []Synonym
	add := func(source Source, values map[string]string) {
		for _, name := range names {
			if text, ok := values[name]; ok {
				found = append(found, Synonym{Name: name, Value: text, Source: source})
			}
		}
	}
	add(SourceBroker, v.ThisBroker)
	add(SourceClusterDefault, v.ClusterDefault)
	return append(found, v.staticSynonyms(names)...)
}

// defaults lists the default values of broker settings that have one.
func defaults(names ...string) []Synonym {
	var found []Synonym
	for _, name := range names {
		if k := mustKey(BrokerTable, name); !k.Null {
			found = append(found, Synonym{Name: name, Value: k.Default, Source: SourceDefault})
		}
	}
	return found
}

// staticSynonyms orders what was given at start by layer first: a flag that
// sets hours wins over a file that sets milliseconds.
func (v Values) staticSynonyms(names []string) []Synonym {
	var found []Synonym
	var layers []int
	for _, name := range names {
		s, ok := v.Static.Lookup(name)
		if !ok {
			continue
		}
		at := 0
		for at < len(layers) && layers[at] >= s.layer {
			at++
		}
		found = insert(found, at, Synonym{Name: name, Value: s.Value, Source: SourceStatic})
		layers = insert(layers, at, s.layer)
	}
	return found
}

func insert[T any](list []T, at int, v T) []T {
	list = append(list, v)
	copy(list[at+1:], list[at:])
	list[at] = v
	return list
}

// convert brings a synonym's value into the key's unit.
func convert(s Synonym, k *Key) string {
	if s.Name == k.Name {
		return s.Value
	}
	from := mustKey(BrokerTable, s.Name)
	if from.Unit == k.Unit || from.Unit.millis() == 0 || k.Unit.millis() == 0 {
		return s.Value
	}
	n := mustInt(s.Value)
	if n < 0 {
		return s.Value // "no limit" has no unit
	}
	return formatInt(n * from.Unit.millis() / k.Unit.millis())
}

// hide takes the values out of a sensitive setting.
func hide(r Resolved) Resolved {
	if !r.Key.Sensitive {
		return r
	}
	r.Value, r.Null = "", true
	for i := range r.Synonyms {
		r.Synonyms[i].Value, r.Synonyms[i].Null = "", true
	}
	return r
}
