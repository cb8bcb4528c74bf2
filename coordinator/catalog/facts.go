package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// Fact is the whole state of one thing, or that it is gone.
type Fact interface {
	encode() (key, value []byte) // a nil value is a tombstone
	apply(m *Machine)
}

// kind is the first field of a key after its version.
type kind int8

const (
	kindTopic       kind = 1
	kindSettings    kind = 2
	kindFeatures    kind = 3
	kindProducerIDs kind = 4
	kindCredential  kind = 5
	kindACL         kind = 6
	kindQuota       kind = 7
)

const factVersion = 0

type (
	// topicFact is a topic. Partitions 0 is a deleted one.
	topicFact struct {
		ID         model.TopicID
		Name       string
		Partitions int32
		Internal   bool // never journaled: internal topics are no facts
		Created    model.Timestamp
		Overrides  map[string]string
	}
	// settingsFact are the settings of a broker, group or client metrics
	// subscription; none means that it has none of its own.
	settingsFact struct {
		Resource config.Resource
		Name     string
		Values   map[string]string
	}
	// staticFact is what the broker was started with, read anew. It is volatile.
	staticFact struct{ Static *config.Static }

	featuresFact    struct{ Features Features }
	producerIDsFact struct{ Next model.ProducerID }
	credentialFact  struct {
		Credential Credential
		Gone       bool
	}
	aclFact struct {
		ACL  ACL
		Gone bool
	}
	// quotaFact are the limits of an entity; none means that it has none.
	quotaFact struct {
		Entity QuotaEntity
		Values map[string]float64
	}
)

func newKey(k kind) *machine.Writer {
	w := &machine.Writer{}
	w.Int16(factVersion)
	w.Int8(int8(k))
	return w
}

func newValue() *machine.Writer {
	w := &machine.Writer{}
	w.Int16(factVersion)
	return w
}

func (f topicFact) encode() (key, value []byte) {
	k := newKey(kindTopic)
	k.Raw(f.ID[:])
	if f.Partitions == 0 {
		return k.Bytes(), nil
	}
	v := newValue()
	v.String(f.Name)
	v.Int32(f.Partitions)
	v.Int64(int64(f.Created))
	writeSettings(v, f.Overrides)
	return k.Bytes(), v.Bytes()
}

func (f settingsFact) encode() (key, value []byte) {
	k := newKey(kindSettings)
	k.Int8(int8(f.Resource))
	k.String(f.Name)
	if len(f.Values) == 0 {
		return k.Bytes(), nil
	}
	v := newValue()
	writeSettings(v, f.Values)
	return k.Bytes(), v.Bytes()
}

func (staticFact) encode() (key, value []byte) { return nil, nil }

func (f featuresFact) encode() (key, value []byte) {
	v := newValue()
	v.Int64(f.Features.Epoch)
	v.Int32(int32(len(f.Features.Levels)))
	for _, name := range slices.Sorted(maps.Keys(f.Features.Levels)) {
		v.String(name)
		v.Int16(f.Features.Levels[name])
	}
	return newKey(kindFeatures).Bytes(), v.Bytes()
}

func (f producerIDsFact) encode() (key, value []byte) {
	v := newValue()
	v.Int64(int64(f.Next))
	return newKey(kindProducerIDs).Bytes(), v.Bytes()
}

func (f credentialFact) encode() (key, value []byte) {
	k := newKey(kindCredential)
	k.Int8(int8(f.Credential.Mechanism))
	k.String(f.Credential.User)
	if f.Gone {
		return k.Bytes(), nil
	}
	v := newValue()
	v.Int32(f.Credential.Iterations)
	v.Blob(f.Credential.Salt)
	v.Blob(f.Credential.StoredKey)
	v.Blob(f.Credential.ServerKey)
	return k.Bytes(), v.Bytes()
}

func (f aclFact) encode() (key, value []byte) {
	k := newKey(kindACL)
	k.Int8(f.ACL.ResourceType)
	k.String(f.ACL.ResourceName)
	k.Int8(f.ACL.PatternType)
	k.String(f.ACL.Principal)
	k.String(f.ACL.Host)
	k.Int8(f.ACL.Operation)
	k.Int8(f.ACL.Permission)
	if f.Gone {
		return k.Bytes(), nil
	}
	return k.Bytes(), newValue().Bytes()
}

func (f quotaFact) encode() (key, value []byte) {
	k := newKey(kindQuota)
	k.Int32(int32(len(f.Entity)))
	for _, part := range f.Entity {
		k.String(part.Type)
		k.NullableString(part.nullable())
	}
	if len(f.Values) == 0 {
		return k.Bytes(), nil
	}
	v := newValue()
	v.Int32(int32(len(f.Values)))
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		v.String(name)
		v.Int64(int64(math.Float64bits(f.Values[name])))
	}
	return k.Bytes(), v.Bytes()
}

func writeSettings(w *machine.Writer, settings map[string]string) {
	w.Int32(int32(len(settings)))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		w.String(name)
		w.String(settings[name])
	}
}

// Codec is the [machine.Codec] of the catalog's facts.
type Codec struct{}

// Encode implements machine.Codec; every fact is journaled but what the broker
// was started with.
func (Codec) Encode(f Fact) (key, value []byte, ok bool) {
	if _, volatile := f.(staticFact); volatile {
		return nil, nil, false
	}
	key, value = f.encode()
	return key, value, true
}

// Decode implements machine.Codec.
func (Codec) Decode(r machine.Record) (Fact, error) {
	key, value := machine.NewReader(r.Key), machine.NewReader(r.Value)
	gone := r.Value == nil
	if v := key.Int16(); key.Err() == nil && v != factVersion {
		return nil, machine.ErrUnknownFact
	}
	k := kind(key.Int8())
	if !gone {
		if v := value.Int16(); value.Err() == nil && v != factVersion {
			return nil, machine.ErrUnknownFact
		}
	}
	if key.Err() != nil {
		return nil, key.Err()
	}
	decode, ok := decoders[k]
	if !ok {
		return nil, machine.ErrUnknownFact
	}
	f := decode(key, value, gone)
	for _, part := range []*machine.Reader{key, value} {
		if part.Err() == nil && part.Len() > 0 {
			part.Fail("%d bytes too many", part.Len())
		}
	}
	if err := key.Err(); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if err := value.Err(); err != nil && !gone {
		return nil, fmt.Errorf("value: %w", err)
	}
	return f, nil
}

// decoders read a key from behind its kind and a value from behind its
// version; the value is empty when the thing is gone.
var decoders = map[kind]func(key, value *machine.Reader, gone bool) Fact{
	kindTopic: func(key, value *machine.Reader, gone bool) Fact {
		var f topicFact
		key.Raw(f.ID[:])
		if gone {
			return f
		}
		f.Name, f.Partitions = value.String(), value.Int32()
		f.Created, f.Overrides = model.Timestamp(value.Int64()), readSettings(value)
		if f.Partitions <= 0 || f.Partitions > MaxPartitions {
			value.Fail("%d partitions", f.Partitions)
		}
		return f
	},
	kindSettings: func(key, value *machine.Reader, gone bool) Fact {
		f := settingsFact{Resource: config.Resource(key.Int8()), Name: key.String()}
		if !gone {
			f.Values = readSettings(value)
		}
		return f
	},
	kindFeatures: func(_, value *machine.Reader, _ bool) Fact {
		f := featuresFact{Features{Epoch: value.Int64(), Levels: map[string]int16{}}}
		for range value.Count(2) {
			name := value.String()
			f.Features.Levels[name] = value.Int16()
		}
		return f
	},
	kindProducerIDs: func(_, value *machine.Reader, _ bool) Fact {
		return producerIDsFact{model.ProducerID(value.Int64())}
	},
	kindCredential: func(key, value *machine.Reader, gone bool) Fact {
		f := credentialFact{Credential{Mechanism: Mechanism(key.Int8()), User: key.String()}, gone}
		if !gone {
			c := &f.Credential
			c.Iterations, c.Salt, c.StoredKey, c.ServerKey = value.Int32(), value.Blob(), value.Blob(), value.Blob()
		}
		return f
	},
	kindACL: func(key, _ *machine.Reader, gone bool) Fact {
		return aclFact{ACL{ResourceType: key.Int8(), ResourceName: key.String(), PatternType: key.Int8(),
			Principal: key.String(), Host: key.String(), Operation: key.Int8(), Permission: key.Int8()}, gone}
	},
	kindQuota: func(key, value *machine.Reader, gone bool) Fact {
		f := quotaFact{Values: map[string]float64{}}
		for range key.Count(2) {
			f.Entity = append(f.Entity, quotaPart(key.String(), key.NullableString()))
		}
		if !gone {
			for range value.Count(2) {
				name := value.String()
				f.Values[name] = math.Float64frombits(uint64(value.Int64()))
			}
		}
		return f
	},
}

func readSettings(r *machine.Reader) map[string]string {
	settings := map[string]string{}
	for range r.Count(2) {
		name := r.String()
		settings[name] = r.String()
	}
	return settings
}
