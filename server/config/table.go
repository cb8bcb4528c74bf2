package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Table is the settings of one kind of resource.
type Table struct {
	Resource Resource
	keys     []*Key // sorted by name
	byName   map[string]*Key
}

// The tables. They never change.
var (
	TopicTable         = newTable(ResourceTopic, topicKeys)
	BrokerTable        = newTable(ResourceBroker, brokerKeys)
	GroupTable         = newTable(ResourceGroup, groupKeys)
	ClientMetricsTable = newTable(ResourceClientMetrics, clientMetricsKeys)
)

// newTable indexes rows. Settings that are not a broker's can always be changed.
func newTable(r Resource, rows []Key) *Table {
	t := &Table{Resource: r, byName: make(map[string]*Key, len(rows))}
	for i := range rows {
		k := &rows[i]
		if r != ResourceBroker {
			k.Update = Anytime
		}
		t.keys = append(t.keys, k)
		for _, name := range append([]string{k.Name}, k.Aliases...) {
			if t.byName[name] != nil {
				panic(fmt.Sprintf("setting %q stands twice in the table", name))
			}
			t.byName[name] = k
		}
	}
	slices.SortFunc(t.keys, func(a, b *Key) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// Keys returns the rows by name. The slice must not be changed.
func (t *Table) Keys() []*Key { return t.keys }

// Key finds a row by its name or an alias.
func (t *Table) Key(name string) (*Key, bool) {
	k, ok := t.byName[name]
	return k, ok
}

// Nearest returns the known name that a misspelt one most likely means, or "".
func (t *Table) Nearest(name string) string {
	best, bestDistance := "", max(2, len(name)/4)+1
	for _, k := range t.keys {
		if d := distance(name, k.Name, bestDistance); d < bestDistance {
			best, bestDistance = k.Name, d
		}
	}
	return best
}

// didYouMean is the tail of an error about an unknown name.
func (t *Table) didYouMean(name string) string {
	if near := t.Nearest(name); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// distance is the number of letters to insert, delete or replace to get from a
// to b. It stops counting at limit.
func distance(a, b string, limit int) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if abs(len(a)-len(b)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func abs(n int) int { return max(n, -n) }

// UnknownKeyError is a setting that the resource does not have. Its text is
// Kafka's for topics.
type UnknownKeyError struct {
	Resource Resource
	Name     string
}

func (e *UnknownKeyError) Error() string {
	if e.Resource == ResourceTopic {
		return "Unknown topic config name: " + e.Name
	}
	return "Unknown config name: " + e.Name
}

// Gone reports whether the name is a topic setting that Kafka 4 dropped and
// older tools still send.
func Gone(name string) bool { return slices.Contains(goneTopicKeys, name) }

// Check parses a set of values of this table's resource as the protocol
// carries them, and the conditions between them. It returns the canonical
// values, or the first problem in the order of names: *[UnknownKeyError],
// *[ValueError].
func (t *Table) Check(values map[string]string) (map[string]string, error) {
	checked := make(map[string]string, len(values))
	for _, name := range sortedNames(values) {
		k, ok := t.Key(name)
		if !ok {
			return nil, &UnknownKeyError{t.Resource, name}
		}
		v, err := k.Parse(values[name])
		if err != nil {
			return nil, err
		}
		checked[k.Name] = v
	}
	return checked, nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Usable returns the values that this release knows and accepts: what was
// stored by another one may not be. The result is values itself if all are.
func (t *Table) Usable(values map[string]string) map[string]string {
	ok := func(name, value string) bool {
		k, known := t.Key(name)
		if !known {
			return false
		}
		canonical, err := k.Parse(value)
		return err == nil && canonical == value
	}
	for name, value := range values {
		if !ok(name, value) {
			usable := maps.Clone(values)
			maps.DeleteFunc(usable, func(name, value string) bool { return !ok(name, value) })
			return usable
		}
	}
	return values
}
