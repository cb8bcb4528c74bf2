package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// differences are the answers that deliberately are not the original's, by case
// and number of the step, with the row of the decisions, or the section of the
// protocol, that says why.
var differences = map[string]map[int]difference{
	"op_before_auth": {
		4: {"decision 15: an open broker serves a greeted client", expectError(wire.TopicMissing, "topic t does not exist")},
		6: {"decision 15: an open broker serves a greeted client", expectOp(wire.OpTopicList)},
	},
	"describe_and_alter_topic": {
		24: {"section 13.2: the broker's own topics have another layout", expectOp(wire.OpTopicDescription)},
	},
	"produce_errors": {
		18: {"section 8.4: snappy is always available", expectOp(wire.OpProduceAck)},
	},
	"offsets_are_byte_positions_on_the_default_backend": {
		4: {"section 10.6: offsets count records", expectHexOf(&wire.ProduceAck{Partition: 1, Offset: 1})},
		6: {"section 10.6: offsets count records", expectHexOf(&wire.Offsets{Bounds: []wire.PartitionOffsets{{Partition: 1, Latest: 2, HighWatermark: 2, LSO: 2, Flags: 7}}})},
	},
	"nack_until_dead_letter": {
		24: {"section 10.6: there is one backend, which is not a setting", expectHexOf(&wire.TopicDescription{Name: "t-nk.dlq", Partitions: 2})},
	},
	"nack_edges": {
		19: {"decision 7: a group is never moved forward", expectHexOf(&wire.GroupDescription{Group: "g-ne", State: "empty",
			Offsets: []wire.CommittedOffset{{Topic: "t-ne", Partition: 1, Offset: 1}}})},
	},
	"dead_letter_default_backend": {
		2:  {"section 10.6: offsets count records", expectRecords(0, 1)},
		13: {"section 10.6: offsets count records", expectOp(wire.OpRecordBatch)},
	},
	"nack_not_on_a_record_boundary": {
		5: {"section 10.6: offsets count records", expectError(wire.Internal, "cannot nack t-nb/partition-1 offset 1: offset 1 out of range")},
		7: {"section 10.6: offsets count records", expectError(wire.Internal, "cannot nack t-nb/partition-1 offset 9999: offset 9999 out of range")},
	},
	"list_offsets_of_an_internal_topic": {
		2: {"section 13.2: the broker's own topics have another layout", expectOp(wire.OpOffsets)},
	},
	"handshake_deadline": {
		7: {"the deadline is 5 s here, see unhurried", expectError(wire.BadProtocol, "handshake not completed within 5s")},
	},
}

// unhurried are settings in place of the recorded ones, by case, which then has a
// broker of its own: a machine that stalls for half a second must not pass one
// deadline while another is looked at.
var unhurried = map[string]map[string]map[string]any{
	"silent_before_hello": {"Server": {"HandshakeDeadline": 60}},
	"handshake_deadline":  {"Server": {"HandshakeDeadline": 5, "PreAuthReadDeadline": 60}},
	"idle_deadline_and_server_heartbeats": {"Server": {
		"HandshakeDeadline": 60, "PreAuthReadDeadline": 60, "HeartbeatInterval": 3, "IdleDeadline": 8,
	}},
	"ban_after_failures": {"Auth": {"BanDuration": 60}},
}

// changed is a configuration with some settings of its sections replaced.
func changed(config map[string]any, by map[string]map[string]any) map[string]any {
	config = maps.Clone(config)
	for name, settings := range by {
		section := maps.Clone(config[name].(map[string]any))
		maps.Copy(section, settings)
		config[name] = section
	}
	return config
}

type difference struct {
	why    string
	expect func(f wire.Frame, m wire.Message) error
}

func expectOp(op wire.Op) func(wire.Frame, wire.Message) error {
	return func(f wire.Frame, m wire.Message) error {
		if f.Op != op {
			return fmt.Errorf("%s %+v, want %s", f.Op, m, op)
		}
		return nil
	}
}

func expectError(code wire.Code, text string) func(wire.Frame, wire.Message) error {
	return func(f wire.Frame, m wire.Message) error {
		if e, ok := m.(*wire.Error); !ok || e.Code != code || e.Message != text {
			return fmt.Errorf("%s %+v, want %s %q", f.Op, m, code, text)
		}
		return nil
	}
}

func expectHexOf(want wire.Message) func(wire.Frame, wire.Message) error {
	return func(f wire.Frame, m wire.Message) error {
		if got := wire.Append(nil, f.ID, m); !bytes.Equal(got, wire.Append(nil, f.ID, want)) {
			return fmt.Errorf("%s %+v, want %+v", f.Op, m, want)
		}
		return nil
	}
}

func expectRecords(offsets ...uint64) func(wire.Frame, wire.Message) error {
	return func(f wire.Frame, m wire.Message) error {
		b, ok := m.(*wire.RecordBatch)
		var got []uint64
		if ok {
			for _, r := range b.Records {
				got = append(got, r.Offset)
			}
		}
		if !slices.Equal(got, offsets) {
			return fmt.Errorf("%s with offsets %v, want %v", f.Op, got, offsets)
		}
		return nil
	}
}
