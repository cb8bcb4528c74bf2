package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

// Raw is a setting as somebody wrote it.
type Raw struct {
	Name, Value string
	Origin      string // for people: perigee.yaml:12
}

// Sources says where settings come from, weakest first. The zero value is
// "nothing but defaults".
type Sources struct {
	Imported   []Raw    // read from another program's file, already under our names
	MoonMQAuth bool     // MoonMQ clients have to log in: its listener is not an open one
	Properties string   // path of a Kafka server.properties
	File       string   // path of a YAML file
	Environ    []string // NAME=value as from os.Environ; PERIGEE_* is read
	Flags      []Raw    // flags that stand for one setting; Origin is the flag
	Set        []string // key=value, as given to --set
}

// Loaded is a checked configuration.
type Loaded struct {
	Static   *Static
	Broker   *Broker
	Warnings []string // one line each
}

// Problems is everything that is wrong with a configuration. One line each.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "\n") }

// Load reads all sources and checks them. The error is [Problems], all of them
// at once, unless a file could not be read.
func Load(s Sources) (*Loaded, error) {
	l := loader{static: &Static{set: map[string]Setting{}}}
	l.next(s.Imported)
	if s.Properties != "" {
		if err := l.properties(s.Properties); err != nil {
			return nil, err
		}
	}
	if s.File != "" {
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		raw, problems := parseYAML(s.File, text)
		l.problems = append(l.problems, problems...)
		l.next(raw)
	}
	l.environment(s.Environ)
	l.flags(s.Flags, s.Set)

	b, err := NewBroker(Values{Static: l.static})
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			l.problems = append(l.problems, l.blame(line))
		}
	} else {
		l.open(b, s.MoonMQAuth)
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return &Loaded{l.static, b, l.warnings}, nil
}

// loader collects layers into one Static.
type loader struct {
	static   *Static
	layer    int
	problems Problems
	warnings []string
}

// next adds the next stronger layer.
func (l *loader) next(raw []Raw) {
	l.layer++
	for _, r := range raw {
		k, ok := BrokerTable.Key(r.Name)
		if !ok {
			l.problems = append(l.problems, fmt.Sprintf("%s: unknown setting %q%s", r.Origin, r.Name, BrokerTable.didYouMean(r.Name)))
			continue
		}
		l.add(k, r)
	}
}

func (l *loader) add(k *Key, r Raw) {
	value, err := k.ParseHuman(r.Value)
	if err != nil {
		l.problems = append(l.problems, fmt.Sprintf("%s: %s", r.Origin, err))
		return
	}
	if before, ok := l.static.set[k.Name]; ok && before.layer == l.layer && before.Name != r.Name {
		l.problems = append(l.problems, fmt.Sprintf("%s: %s and %s are one setting and both are given", r.Origin, before.Name, r.Name))
		return
	}
	if k.Effect == Stored && value != k.Default {
		l.warnings = append(l.warnings, fmt.Sprintf("%s: %s is accepted and has no effect", r.Origin, r.Name))
	}
	l.static.set[k.Name] = Setting{Key: k, Name: r.Name, Value: value, Origin: r.Origin, layer: l.layer}
}

// properties adds a Kafka server.properties. Kafka ignores names it does not
// know, for plug-ins read them from the same file; so here they are warnings.
func (l *loader) properties(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read properties: %w", err)
	}
	p, err := (&properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}).LoadBytes(text)
	if err != nil {
		return fmt.Errorf("read properties %s: %w", path, err)
	}
	lines := propertyLines(string(text))
	var known []Raw
	for _, name := range p.Keys() {
		value, _ := p.Get(name)
		origin := path
		if n := lines[name]; n > 0 {
			origin = fmt.Sprintf("%s:%d", path, n)
		}
		if _, ok := BrokerTable.Key(name); !ok {
			l.warnings = append(l.warnings, fmt.Sprintf("%s: unknown setting %q is ignored%s", origin, name, BrokerTable.didYouMean(name)))
			continue
		}
		known = append(known, Raw{name, value, origin})
	}
	l.next(known)
	return nil
}

// propertyLines finds the last line of each name that is written plainly at a
// line's start, as names are in practice. It is for messages only.
func propertyLines(text string) map[string]int {
	lines := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if end := strings.IndexAny(line, "=: \t"); end > 0 && line[0] != '#' && line[0] != '!' {
			lines[line[:end]] = i + 1
		}
	}
	return lines
}

// environmentPrefix begins the names of environment variables that are settings.
const environmentPrefix = "PERIGEE_"

// notSettings are variables that other parts of the program read.
var notSettings = []string{"PERIGEE_CONFIG", "PERIGEE_BROKERS", "PERIGEE_PROFILE", "PERIGEE_HTTP", "PERIGEE_BOOTSTRAP_USER"}

// environment adds PERIGEE_* variables: _ is a dot, __ an underscore and ___ a
// dash, as in Kafka's image. Our own settings may leave their "perigee." out.
func (l *loader) environment(environ []string) {
	var raw []Raw
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		short, ok := strings.CutPrefix(variable, environmentPrefix)
		if !ok || slices.Contains(notSettings, variable) {
			continue
		}
		name := strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(short))
		if _, ok := BrokerTable.Key(name); !ok {
			name = "perigee." + name
		}
		if _, ok := BrokerTable.Key(name); !ok {
			name = strings.TrimPrefix(name, "perigee.")
			l.warnings = append(l.warnings, fmt.Sprintf("%s: unknown setting %q is ignored%s", variable, name, BrokerTable.didYouMean(name)))
			continue
		}
		raw = append(raw, Raw{name, value, variable})
	}
	l.next(raw)
}

// flags adds flags and --set, of which the last one given wins.
func (l *loader) flags(flags []Raw, set []string) {
	raw := slices.Clone(flags)
	for _, pair := range set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			l.problems = append(l.problems, fmt.Sprintf("--set %s: not key=value", pair))
			continue
		}
		raw = append(raw, Raw{strings.TrimSpace(name), value, "--set"})
	}
	last := map[string]int{}
	for i, r := range raw {
		if k, ok := BrokerTable.Key(r.Name); ok {
			last[k.Name] = i
		}
	}
	keep := slices.Sorted(maps.Values(last))
	var effective []Raw
	for i, r := range raw {
		_, known := BrokerTable.Key(r.Name)
		if _, found := slices.BinarySearch(keep, i); found || !known {
			effective = append(effective, r)
		}
	}
	l.next(effective)
}

// blame puts the origin of the setting a problem names in front of it.
func (l *loader) blame(problem string) string {
	name, _, ok := strings.Cut(problem, ":")
	if s, given := l.static.set[name]; ok && given {
		return s.Origin + ": " + problem
	}
	return problem
}

// open checks that a broker without authentication is not reachable from
// elsewhere by accident.
func (l *loader) open(b *Broker, moonMQAuth bool) {
	for _, listener := range b.Open() {
		if moonMQAuth && b.MoonMQ != nil && listener == *b.MoonMQ {
			continue
		}
		if !b.AllowOpen {
			l.problems = append(l.problems, fmt.Sprintf("%s: other machines can reach it and nobody has to authenticate; set perigee.allow.open=true if that is wanted", listener.Address()))
			continue
		}
		l.warnings = append(l.warnings, fmt.Sprintf("%s: open to other machines without authentication", listener.Address()))
	}
}
