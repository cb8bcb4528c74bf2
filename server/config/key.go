package config

// Type is a setting's type, numbered as DescribeConfigs (KIP-226, KIP-569)
// numbers it.
type Type int8

// The types of settings.
const (
	Bool     Type = 1
	String   Type = 2
	Int      Type = 3 // 32 bits
	Short    Type = 4
	Long     Type = 5 // 64 bits
	Double   Type = 6
	List     Type = 7 // comma-separated
	Class    Type = 8
	Password Type = 9
)

var typeNames = map[Type]string{Bool: "BOOLEAN", String: "STRING", Int: "INT", Short: "SHORT", Long: "LONG",
	Double: "DOUBLE", List: "LIST", Class: "CLASS", Password: "PASSWORD"}

func (t Type) String() string { return typeNames[t] }

func (t Type) numeric() bool { return t == Int || t == Short || t == Long || t == Double }

// Source says where a value comes from, numbered as DescribeConfigs numbers it.
type Source int8

// The sources, strongest first but for the last two, which belong to resources
// of their own.
const (
	SourceTopic          Source = 1 // set on the topic
	SourceBroker         Source = 2 // set at run time for one broker
	SourceClusterDefault Source = 3 // set at run time for all brokers
	SourceStatic         Source = 4 // set at start: file, environment, flag
	SourceDefault        Source = 5
	SourceClientMetrics  Source = 7
	SourceGroup          Source = 8
)

// Resource is a kind of thing that has settings, numbered as in the protocol.
type Resource int8

// The kinds of resources.
const (
	ResourceTopic         Resource = 2
	ResourceBroker        Resource = 4
	ResourceBrokerLogger  Resource = 8
	ResourceClientMetrics Resource = 16
	ResourceGroup         Resource = 32
)

// Update says where a broker setting may be changed while the broker runs.
type Update int8

// Topic, group and client metrics settings are all [Anytime].
const (
	AtStart   Update = iota // only at start; described as read-only
	PerBroker               // at run time, for one broker
	Anytime                 // at run time, for one broker or all
)

func (u Update) String() string {
	return [...]string{"at start", "per broker", "any time"}[u]
}

// Effect says what Perigee does with a setting.
type Effect int8

// The effects.
const (
	Honoured Effect = iota
	Stored          // accepted and described; changes nothing on one node
	Refused         // only the default is accepted
)

func (e Effect) String() string {
	return [...]string{"honoured", "accepted, no effect", "only the default"}[e]
}

// Unit is the unit of a plain number, which is also what makes a human form
// possible in files, the environment and flags.
type Unit int8

// The units.
const (
	NoUnit Unit = iota
	Bytes
	Millis
	Seconds
	Minutes
	Hours
)

func (u Unit) String() string {
	return [...]string{"", "bytes", "ms", "s", "min", "h"}[u]
}

// millis is the length of a time unit, 0 for others.
func (u Unit) millis() int64 {
	return [...]int64{0, 0, 1, 1000, 60_000, 3_600_000}[u]
}

// Key is one row of the table.
type Key struct {
	Name    string
	Type    Type
	Default string // canonical text; not used when Null
	Null    bool   // there is no default value: Kafka shows null
	Unit    Unit
	Update  Update
	Effect  Effect
	Doc     string

	// Sensitive values are never shown; Kafka shows null.
	Sensitive bool

	// Hidden keys are described only when they are set: our own settings, which
	// tools that copy a topic to a real Kafka (MirrorMaker, KAFKA-13255) would
	// otherwise carry to a broker that refuses them.
	Hidden bool

	// Fallback are the broker settings that decide when this one is not set, in
	// order: the most specific first. They may have another unit.
	Fallback []string

	// Aliases are other spellings accepted on input and shown nowhere.
	Aliases []string

	rule rule
}

// Valid describes the values that are accepted, for people. It is empty when
// the type says it all.
func (k *Key) Valid() string { return k.rule.text }

// ReadOnly reports whether a running broker refuses to change the setting.
func (k *Key) ReadOnly() bool { return k.Update == AtStart }
