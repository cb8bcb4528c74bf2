package moonmq

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func payload(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = appendStr(b, p)
		case byte:
			b = append(b, p)
		case []byte:
			b = append(b, p...)
		case uint16:
			b = appendU16(b, p)
		case uint32:
			b = appendU32(b, p)
		case uint64:
			b = appendU64(b, p)
		default:
			panic(reflect.TypeOf(p))
		}
	}
	return b
}

func long(n int) string { return strings.Repeat("x", n) }

// The texts are the protocol's: applications match on them.
func TestRefusedRequests(t *testing.T) {
	tests := []struct {
		name    string
		op      Op
		payload []byte
		want    string
	}{
		{"auth without password length", OpAuth, payload("u"), "truncated string length"},
		{"auth name too long", OpAuth, payload(long(257), ""), "string field too long (257 > 256)"},
		{"auth password too long", OpAuth, payload("u", long(1025)), "string field too long (1025 > 1024)"},
		{"client name too long", OpIdentifyClient, payload(long(129), ""), "string field too long (129 > 128)"},
		{"client version too long", OpIdentifyClient, payload("", long(65)), "string field too long (65 > 64)"},
		{"produce without codec", OpProduce, nil, "short produce header"},
		{"produce topic too long", OpProduce, payload(byte(0), long(250), "", ""), "string field too long (250 > 249)"},
		{"produce key too long", OpProduce, payload(byte(0), "t", long(65537), ""), "string field too long (65537 > 65536)"},
		{"produce value too long", OpProduce, payload(byte(0), "t", "", long(65537)), "string field too long (65537 > 65536)"},
		{"produce value missing", OpProduce, payload(byte(0), "t", "k"), "truncated string length"},
		{"idempotent header short", OpProduceIdempotent, payload(uint64(1), uint32(0), uint16(0)), "short produce_idempotent header"},
		{"fetch without max", OpFetch, payload("t", "g", uint16(1)), "short fetch"},
		{"fetch group too long", OpFetch, payload("t", long(257), uint32(1)), "string field too long (257 > 256)"},
		{"commit short", OpCommit, payload("t", uint64(1)), "short commit"},
		{"nack short", OpNack, payload("t", uint64(1)), "short nack"},
		{"nack without reason", OpNack, payload("t", uint32(1), uint64(1)), "truncated string length"},
		{"nack reason too long", OpNack, payload("t", uint32(1), uint64(1), long(1025)), "string field too long (1025 > 1024)"},
		{"end_txn empty", OpEndTxn, nil, "short end_txn"},
		{"create_topic short", OpCreateTopic, payload("t", uint16(1)), "short create_topic"},
		{"create_partitions short", OpCreatePartitions, payload("t"), "short create_partitions"},
		{"join without count", OpJoinGroup, payload("g", "m"), "short join_group topic count"},
		{"join with too many", OpJoinGroup, payload("g", "", uint32(257)), "too many topics (257 > 256)"},
		{"join with none", OpJoinGroup, payload("g", "", uint32(0)), "join_group requires at least one topic"},
		{"join cut short", OpJoinGroup, payload("g", "", uint32(2), "t"), "truncated string length"},
		{"alter without count", OpAlterTopicConfig, payload("t"), "short alter_topic_config count"},
		{"alter with too many", OpAlterTopicConfig, payload("t", uint32(65)), "too many config entries (65 > 64)"},
		{"alter key too long", OpAlterTopicConfig, payload("t", uint32(1), long(65), ""), "string field too long (65 > 64)"},
		{"txn offsets without count", OpTxnOffsetCommit, payload("g"), "short txn_offset_commit count"},
		{"txn offsets too many", OpTxnOffsetCommit, payload("g", uint32(1025)), "too many offsets (1025 > 1024)"},
		{"txn offsets entry short", OpTxnOffsetCommit, payload("g", uint32(1), "t", uint32(1)), "short txn_offset entry"},
		{"batch header", OpProduceBatch, payload(byte(0)), "short produce_batch header"},
		{"batch producer header", OpProduceBatch, payload(byte(1), byte(0), "t", uint64(1)), "short produce_batch producer header"},
		{"batch count", OpProduceBatch, payload(byte(0), byte(0), "t"), "short produce_batch count"},
		{"batch of none", OpProduceBatch, payload(byte(0), byte(0), "t", uint32(0)), "produce_batch with no records"},
		{"batch of too many", OpProduceBatch, payload(byte(0), byte(0), "t", uint32(10001)), "too many records (10001 > 10000)"},
		{"batch count beyond payload", OpProduceBatch, payload(byte(0), byte(0), "t", uint32(3), "k", "v"), "produce_batch count 3 exceeds payload"},
		{"offsets mode", OpListOffsets, payload("t", byte(2)), "list_offsets: unknown mode 2"},
		{"offsets timestamp", OpListOffsets, payload("t", byte(1), uint32(1)), "list_offsets: timestamp mode without a timestamp"},
		{"scram mechanism too long", OpAuthScram, payload(long(65), ""), "string field too long (65 > 64)"},
		{"scram message too long", OpAuthScramFinal, payload(long(4097)), "string field too long (4097 > 4096)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeRequest(tt.op, tt.payload)
			var d *DecodeError
			if !errors.As(err, &d) || d.Text != tt.want {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestLengthPrefix(t *testing.T) {
	for _, tt := range []struct {
		length uint32
		want   string
	}{
		{0, "frame shorter than header"},
		{16, "frame shorter than header"},
		{17, ""},
		{DefaultMaxFrame, ""},
		{DefaultMaxFrame + 1, "frame 1048577 exceeds max 1048576"},
		{1<<32 - 1, "frame 4294967295 exceeds max 1048576"},
	} {
		err := CheckLength(tt.length, DefaultMaxFrame)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("length %d: error %v, want %q", tt.length, err, tt.want)
		}
	}
}

// A headers block is recognised only when it is exactly that; everything else
// after the last field is ignored.
func TestTrailingHeaders(t *testing.T) {
	base := payload(byte(0), "t", "k", "v")
	block := Headers{{Name: "trace", Value: []byte("1")}, {Name: "", Value: []byte{}}}
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  int
	}{
		{"none", nil, 0},
		{"block", block.appendTo(nil), 2},
		{"empty block", Headers{}.appendTo(nil), 0},
		{"noise", []byte("noise"), 0},
		{"one byte", []byte{1}, 0},
		{"block and one byte more", append(block.appendTo(nil), 0), 0},
		{"block cut short", block.appendTo(nil)[:9], 0},
	} {
		m, err := DecodeRequest(OpProduce, append(base[:len(base):len(base)], tt.bytes...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := m.(*Produce).Headers; len(got) != tt.want {
			t.Errorf("%s: headers %v, want %d", tt.name, got, tt.want)
		}
	}
}

func TestRecordsWithHeadersRoundTrip(t *testing.T) {
	want := &RecordBatch{WithHeaders: true, Records: []Record{
		{Topic: "t", Partition: 1, Offset: 7, Timestamp: 9, Key: []byte("k"), Value: []byte("v"), WithHeaders: true,
			Headers: Headers{{Name: "a", Value: []byte("1")}}},
		{Topic: "t", Partition: 2, Offset: 8, Key: []byte{}, Value: []byte{}, WithHeaders: true, Headers: Headers{}},
	}}
	size := 4
	for i := range want.Records {
		size += want.Records[i].Size(true)
	}
	raw := Append(nil, CorrelationID{}, want)
	if got := len(raw) - LengthSize - HeaderSize; got != size {
		t.Errorf("payload of %d bytes, Size says %d", got, size)
	}
	got, err := DecodeReply(OpRecordBatch, raw[LengthSize+HeaderSize:], true)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

// A client gives up on a reply above its own limits, as the Lua client does.
func TestRefusedReplies(t *testing.T) {
	for _, tt := range []struct {
		name    string
		op      Op
		payload []byte
	}{
		{"record value", OpRecord, payload("t", uint32(1), uint64(1), uint64(1), "k", long(65537))},
		{"batch count", OpRecordBatch, payload(uint32(10001))},
		{"batch cut short", OpRecordBatch, payload(uint32(1))},
		{"acks", OpProduceBatchAck, payload(uint32(10001))},
		{"groups", OpGroupList, payload(uint32(4097))},
		{"members", OpGroupDescription, payload("g", "stable", uint32(257))},
		{"offsets", OpGroupDescription, payload("g", "stable", uint32(0), uint32(1025))},
		{"partitions", OpGroupAssignment, payload("m", uint32(1), "t", uint32(1025))},
		{"partitions cut short", OpGroupAssignment, payload("m", uint32(1), "t", uint32(1024))},
		{"bounds", OpOffsets, payload(uint32(1025))},
		{"error", OpError, nil},
	} {
		if m, err := DecodeReply(tt.op, tt.payload, false); err == nil {
			t.Errorf("%s: decoded %+v", tt.name, m)
		}
	}
}

func TestUnknownOps(t *testing.T) {
	for _, op := range []Op{0, 0x09, 0x7f, OpWelcome, 0x85, 0xff} {
		if _, err := DecodeRequest(op, nil); !errors.Is(err, ErrUnknownOp) {
			t.Errorf("request %s: %v", op, err)
		}
	}
	if _, err := DecodeReply(OpProduce, nil, false); !errors.Is(err, ErrUnknownOp) {
		t.Errorf("reply: %v", err)
	}
	if got := Op(0x09).String(); got != "0x09" {
		t.Errorf("unnamed op prints %s", got)
	}
}

// Decoding never panics, never allocates more than the payload justifies, and
// what it accepts survives a round trip.
func FuzzRequest(f *testing.F) {
	for _, v := range loadVectors(f).Frames {
		raw := unhex(f, v.Hex)
		f.Add(raw[LengthSize:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		frame, err := ParseFrame(body)
		if err != nil {
			return
		}
		for _, decode := range []func() (Message, error){
			func() (Message, error) { return DecodeRequest(frame.Op, frame.Payload) },
			func() (Message, error) { return DecodeReply(frame.Op, frame.Payload, false) },
			func() (Message, error) { return DecodeReply(frame.Op, frame.Payload, true) },
		} {
			m, err := decode()
			if err != nil {
				continue
			}
			checkAgain(t, frame, m)
		}
	})
}

func checkAgain(t *testing.T, f Frame, m Message) {
	t.Helper()
	raw := Append(nil, f.ID, m)
	if got := binary.BigEndian.Uint32(raw); int(got) != len(raw)-LengthSize {
		t.Fatalf("length %d of %d bytes", got, len(raw))
	}
	withHeaders := false
	switch m := m.(type) {
	case *Record:
		withHeaders = m.WithHeaders
	case *RecordBatch:
		withHeaders = m.WithHeaders
	}
	_, isRequest := requestDecoders[f.Op]
	var again Message
	var err error
	if isRequest {
		again, err = DecodeRequest(f.Op, raw[LengthSize+HeaderSize:])
	} else {
		again, err = DecodeReply(f.Op, raw[LengthSize+HeaderSize:], withHeaders)
	}
	if err != nil {
		t.Fatalf("%+v: %v", m, err)
	}
	if !reflect.DeepEqual(m, again) {
		t.Fatalf("round trip gave %+v, want %+v", again, m)
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, e := range loadVectors(f).Envelopes {
		f.Add(unhex(f, e.Hex))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := DecodeEnvelope(raw)
		if err != nil {
			return
		}
		again, err := DecodeEnvelope(AppendEnvelope(nil, &e))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("round trip gave %+v (%v), want %+v", again, err, e)
		}
	})
}
