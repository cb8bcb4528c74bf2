package txn_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/model"
)

// throughBytes encodes a fact and decodes it again.
func throughBytes(t *testing.T, f txn.Fact) txn.Fact {
	t.Helper()
	key, value, ok := txn.Codec{}.Encode(f)
	if !ok {
		t.Fatalf("%+v is not journaled", f)
	}
	back, err := txn.Codec{}.Decode(machine.Record{Key: key, Value: value})
	if err != nil {
		t.Fatalf("decode what was encoded from %+v: %v", f.Record, err)
	}
	return back
}

func fullRecord() txn.Record {
	part := func(topic byte, name string, n int32) txn.Participant {
		return txn.Participant{TopicPartition: model.TopicPartition{Topic: model.TopicID{15: topic}, Partition: n}, Name: name}
	}
	return txn.Record{
		ID:         "billing",
		Producer:   model.ProducerIdentity{ID: 12, Epoch: 3},
		LastEpoch:  2,
		PrevID:     11,
		NextID:     13,
		Timeout:    90 * time.Second,
		State:      txn.Ongoing,
		Partitions: []txn.Participant{part(1, "a", 0), part(1, "a", 7), part(2, "b", 1)},
		Start:      1000,
		Updated:    2000,
		Version:    txn.V2,
		Owner:      txn.Session,
	}
}

// What Kafka's schema names stands where an independent codec finds it, and
// what we add does not disturb it.
func TestRecordBytesAreKafkas(t *testing.T) {
	r := fullRecord()
	key, value, _ := txn.Codec{}.Encode(txn.Fact{ID: r.ID, Record: &r})

	k := kmsg.NewTxnMetadataKey()
	if err := k.ReadFrom(key); err != nil || k.TransactionalID != "billing" || k.Version != 0 {
		t.Errorf("key %+v, %v", k, err)
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(value); err != nil {
		t.Fatal(err)
	}
	v.UnknownTags = kmsg.Tags{}
	want := kmsg.NewTxnMetadataValue()
	want.Version, want.ProducerID, want.ProducerEpoch = 1, 12, 3
	want.TimeoutMillis, want.State = 90_000, kmsg.TransactionStateOngoing
	want.LastUpdateTimestamp, want.StartTimestamp = 2000, 1000
	want.PreviousProducerID, want.NextProducerID, want.ClientTransactionVersion = 11, 13, 2
	want.Topics = []kmsg.TxnMetadataValueTopic{{Topic: "a", Partitions: []int32{0, 7}}, {Topic: "b", Partitions: []int32{1}}}
	if d := cmp.Diff(want.AppendTo(nil), v.AppendTo(nil)); d != "" {
		t.Errorf("value, -want +got:\n%s", d)
	}
}

// A record without anything of ours is byte for byte what kmsg writes.
func TestPlainRecordIsByteExact(t *testing.T) {
	r := txn.Record{
		ID: "x", Producer: model.ProducerIdentity{ID: 5, Epoch: 1}, LastEpoch: model.NoProducerEpoch,
		PrevID: model.NoProducerID, NextID: model.NoProducerID, Timeout: time.Minute, Start: model.NoTimestamp, Updated: 77,
	}
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.ProducerEpoch, v.TimeoutMillis = 1, 5, 1, 60_000
	v.LastUpdateTimestamp, v.StartTimestamp = 77, -1
	k := kmsg.NewTxnMetadataKey()
	k.TransactionalID = "x"
	for state, topics := range map[txn.State][]kmsg.TxnMetadataValueTopic{txn.Empty: nil, txn.CompleteCommit: {}} {
		r.State, v.State, v.Topics = state, kmsg.TransactionState(state), topics
		key, value, _ := txn.Codec{}.Encode(txn.Fact{ID: "x", Record: &r})
		if d := cmp.Diff(k.AppendTo(nil), key); d != "" {
			t.Errorf("key, -want +got:\n%s", d)
		}
		if d := cmp.Diff(v.AppendTo(nil), value); d != "" {
			t.Errorf("value in %v, -want +got:\n%s", state, d)
		}
	}
}

func TestRecordsSurviveTheirBytes(t *testing.T) {
	full := fullRecord()
	empty := txn.Record{ID: "e", LastEpoch: model.NoProducerEpoch, PrevID: model.NoProducerID, NextID: model.NoProducerID}
	for _, f := range []txn.Fact{{ID: full.ID, Record: &full}, {ID: "e", Record: &empty}, {ID: "gone"}} {
		if d := cmp.Diff(f, throughBytes(t, f)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}

// Kafka writes version 0 while transaction.version is 0; it has no tags.
func TestReadsVersion0(t *testing.T) {
	v := kmsg.NewTxnMetadataValue()
	v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, v.State = 5, 1, 60_000, kmsg.TransactionStateCompleteCommit
	v.LastUpdateTimestamp, v.StartTimestamp = 77, 70
	k := kmsg.NewTxnMetadataKey()
	k.TransactionalID = "x"
	f, err := txn.Codec{}.Decode(machine.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)})
	if err != nil {
		t.Fatal(err)
	}
	want := txn.Fact{ID: "x", Record: &txn.Record{
		ID: "x", Producer: model.ProducerIdentity{ID: 5, Epoch: 1}, LastEpoch: model.NoProducerEpoch, State: txn.CompleteCommit,
		PrevID: model.NoProducerID, NextID: model.NoProducerID, Timeout: time.Minute, Start: 70, Updated: 77,
	}}
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	r := fullRecord()
	key, value, _ := txn.Codec{}.Encode(txn.Fact{ID: r.ID, Record: &r})
	for n := range len(value) {
		if _, err := (txn.Codec{}).Decode(machine.Record{Key: key, Value: value[:n]}); err == nil {
			t.Errorf("a value cut to %d of %d bytes was read", n, len(value))
		}
	}
	if _, err := (txn.Codec{}).Decode(machine.Record{Key: []byte{0, 9}, Value: value}); !errors.Is(err, machine.ErrUnknownFact) {
		t.Errorf("unknown key version: %v", err)
	}
	future := append([]byte{0, 2}, value[2:]...)
	if _, err := (txn.Codec{}).Decode(machine.Record{Key: key, Value: future}); !errors.Is(err, machine.ErrMalformed) {
		t.Errorf("unknown value version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	r := fullRecord()
	key, value, _ := txn.Codec{}.Encode(txn.Fact{ID: r.ID, Record: &r})
	f.Add(key, value)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		fact, err := txn.Codec{}.Decode(machine.Record{Key: key, Value: value})
		if err == nil && fact.Record != nil {
			txn.NewMachine(txn.Options{}).Apply(fact, 0)
		}
	})
}
