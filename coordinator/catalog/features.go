package catalog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// Features are the finalized feature levels (KIP-584). The epoch only grows,
// over restarts too: a client keeps the list with the greatest epoch it has seen.
type Features struct {
	Epoch  int64
	Levels map[string]int16 // without the features at level 0
}

// Level returns a feature's finalized level, 0 if it has none.
func (f Features) Level(name string) int16 { return f.Levels[name] }

// TransactionVersion is the name of the feature that chooses between the
// transaction protocols: 2 is KIP-890's.
const TransactionVersion = "transaction.version"

// FeatureRange is what this broker supports of a feature.
type FeatureRange struct {
	Name     string
	Min, Max int16
	Fixed    bool // the finalized level cannot be changed
}

// SupportedFeatures lists what this broker supports, by name. The levels are
// those of Kafka 4.4.
var SupportedFeatures = []FeatureRange{
	{Name: "kraft.version", Min: 0, Max: 1, Fixed: true},
	{Name: "metadata.version", Min: 7, Max: 33, Fixed: true},
	{Name: TransactionVersion, Min: 0, Max: 2},
}

// initialFeatures is what a new data directory finalizes.
func initialFeatures(transactionVersion int16) Features {
	f := Features{Epoch: 1, Levels: map[string]int16{}}
	for _, supported := range SupportedFeatures {
		f.Levels[supported.Name] = supported.Max
	}
	f.set(TransactionVersion, transactionVersion)
	return f
}

func (f *Features) set(name string, level int16) {
	if level == 0 {
		delete(f.Levels, name)
		return
	}
	f.Levels[name] = level
}

// Begin writes the first facts of a new data directory; later ones ignore it.
type Begin struct {
	TransactionVersion int16
	To                 *machine.Promise[struct{}]
}

func (c Begin) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	if m.snapshot.features.Epoch > 0 {
		return done(c.To, nil)
	}
	return done(c.To, []Fact{featuresFact{initialFeatures(c.TransactionVersion)}})
}

// FeatureUpdate asks for a feature's level. Downgrade must be set to lower it
// (UpdateFeatures' upgrade types 2 and 3), and must not be set to raise it.
type FeatureUpdate struct {
	Name      string
	Level     int16
	Downgrade bool
}

// UpdateFeatures changes finalized levels, all or none.
type UpdateFeatures struct {
	Updates      []FeatureUpdate
	ValidateOnly bool
	NodeID       int32                     // for the words of refusals
	To           *machine.Promise[[]error] // one per update; nil is accepted
}

func (c UpdateFeatures) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	next := Features{Epoch: m.snapshot.features.Epoch + 1, Levels: maps.Clone(m.snapshot.features.Levels)}
	errs := make([]error, len(c.Updates))
	bad, changed := false, false
	for i, u := range c.Updates {
		errs[i] = m.checkFeature(u, c.NodeID)
		bad = bad || errs[i] != nil
		changed = changed || m.snapshot.features.Level(u.Name) != u.Level
		next.set(u.Name, u.Level)
	}
	d := machine.Decision[Fact]{Replies: []machine.Reply{machine.Answer(c.To, errs)}}
	if !bad && changed && !c.ValidateOnly {
		d.Facts = []Fact{featuresFact{next}}
	}
	return d
}

func (m *Machine) checkFeature(u FeatureUpdate, node int32) error {
	at := slices.IndexFunc(SupportedFeatures, func(f FeatureRange) bool { return f.Name == u.Name })
	if at < 0 {
		return &Error{ErrInvalidUpdateVersion, fmt.Sprintf("Invalid update version %d for feature %s. Local controller %d does not support this feature.", u.Level, u.Name, node)}
	}
	f, current := SupportedFeatures[at], m.snapshot.features.Level(u.Name)
	switch {
	case u.Level < f.Min || u.Level > f.Max:
		return &Error{ErrInvalidUpdateVersion, fmt.Sprintf("Invalid update version %d for feature %s. Local controller %d only supports versions %d-%d", u.Level, u.Name, node, f.Min, f.Max)}
	case u.Level == current:
		return nil
	case f.Fixed:
		return &Error{ErrInvalidUpdateVersion, fmt.Sprintf("Invalid update version %d for feature %s. It stays at %d on this broker.", u.Level, u.Name, current)}
	case u.Level < current && !u.Downgrade:
		return &Error{ErrInvalidUpdateVersion, fmt.Sprintf("Invalid update version %d for feature %s. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.", u.Level, u.Name)}
	case u.Level > current && u.Downgrade:
		return &Error{ErrInvalidUpdateVersion, fmt.Sprintf("Invalid update version %d for feature %s. Can't downgrade to a newer version.", u.Level, u.Name)}
	}
	return nil
}

func (f featuresFact) apply(m *Machine) {
	m.edit(func(s *Snapshot) { s.features = f.Features })
}
