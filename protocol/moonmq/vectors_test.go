package moonmq

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// vectors.json holds frames made by the original broker's encoders.
type vectors struct {
	Frames []struct {
		Name      string          `json:"name"`
		Direction string          `json:"direction"`
		OpName    string          `json:"op_name"`
		Correl    string          `json:"correl"`
		Fields    json.RawMessage `json:"fields"`
		Hex       string          `json:"hex"`
		Note      string          `json:"note"`
	} `json:"frames"`
	Envelopes []struct {
		Name   string         `json:"name"`
		Fields map[string]any `json:"fields"`
		Hex    string         `json:"hex"`
	} `json:"dlq_envelopes"`
}

func loadVectors(t testing.TB) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refused maps the vectors that a decoder must refuse to the text it must give.
var refused = map[string]string{
	"hello_short":               "short hello",
	"produce_truncated_value":   "truncated string body",
	"produce_batch_no_records":  "produce_batch with no records",
	"list_offsets_unknown_mode": "list_offsets: unknown mode 2",
}

// Every recorded frame decodes, and encoding what was decoded gives the same
// bytes: nothing on the wire is lost in the types.
func TestVectorsRoundTrip(t *testing.T) {
	v := loadVectors(t)
	if len(v.Frames) != 129 {
		t.Fatalf("%d frames in the vectors, want 129", len(v.Frames))
	}
	for _, f := range v.Frames {
		t.Run(f.Name, func(t *testing.T) {
			raw := unhex(t, f.Hex)
			frame, err := ParseFrame(raw[LengthSize:])
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(frame.ID[:]); got != f.Correl {
				t.Errorf("correlation id %s, want %s", got, f.Correl)
			}
			if got := frame.Op.String(); got != f.OpName {
				t.Errorf("op %s, want %s", got, f.OpName)
			}
			m, err := decodeEither(f.Direction, frame)
			if want, ok := refused[f.Name]; ok {
				if err == nil || err.Error() != want {
					t.Fatalf("error %v, want %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := Append(nil, frame.ID, m)
			want := raw
			switch f.Name {
			case "produce_trailing_bytes": // trailing bytes are ignored, so they are not repeated
				want = raw[:len(got)]
				want[3] -= byte(len(raw) - len(got))
			case "end_txn_commit_nonzero": // any non-zero byte means commit; ours is 1
				want = slices.Concat(raw[:len(raw)-1], []byte{1})
			}
			if !bytes.Equal(got, want) {
				t.Errorf("encoded\n%x, want\n%x", got, want)
			}
			checkFields(t, f.Fields, m)
		})
	}
}

func decodeEither(direction string, f Frame) (Message, error) {
	if direction == "request" {
		return DecodeRequest(f.Op, f.Payload)
	}
	return DecodeReply(f.Op, f.Payload, false)
}

// fieldNames maps the vectors' names to ours where they are not the same word.
var fieldNames = map[string]string{
	"num_partitions": "Partitions", "group_id": "Group", "member_id": "Member", "producer_name": "Name",
	"dlq_topic": "Topic", "entries": "Bounds", "assignment": "Topics", "seq": "Seq", "member_count": "Members",
}

// checkFields compares a decoded message with the vector's fields, so that a
// decoder and an encoder with the same mistake do not agree with each other.
func checkFields(t *testing.T, raw json.RawMessage, m Message) {
	t.Helper()
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return // the vectors spell "no fields" as an empty list
	}
	if e, ok := m.(*Error); ok {
		if got := e.Code.String(); got != fields["name"] {
			t.Errorf("code name %s, want %v", got, fields["name"])
		}
		delete(fields, "name")
	}
	checkStruct(t, fields, reflect.ValueOf(m).Elem())
}

func checkStruct(t *testing.T, want map[string]any, got reflect.Value) {
	t.Helper()
	for name, value := range want {
		ours := fieldNames[name]
		if ours == "" {
			ours = strings.ReplaceAll(strings.TrimSuffix(name, "_hex"), "_", "")
		}
		field := got.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, ours) })
		if !field.IsValid() {
			t.Errorf("%s has no field for %s", got.Type(), name)
			continue
		}
		if s, ok := value.(string); ok && strings.HasSuffix(name, "_hex") {
			value = unhex(t, s)
		}
		checkValue(t, name, value, field)
	}
}

func checkValue(t *testing.T, name string, want any, got reflect.Value) {
	t.Helper()
	switch want := want.(type) {
	case []any:
		if len(want) != got.Len() {
			t.Errorf("%s: %d elements, want %d", name, got.Len(), len(want))
			return
		}
		for i, w := range want {
			checkValue(t, name, w, got.Index(i))
		}
	case map[string]any:
		if got.Kind() == reflect.Struct {
			checkStruct(t, want, got)
			return
		}
		if len(want) != got.Len() { // a table: pairs of a name and something
			t.Errorf("%s: %d entries, want %d", name, got.Len(), len(want))
			return
		}
		for i := range got.Len() {
			pair := got.Index(i)
			checkValue(t, name, want[pair.Field(0).String()], pair.Field(1))
		}
	case []byte:
		if got.Kind() == reflect.Uint64 {
			checkValue(t, name, json.Number(fmt.Sprint(binary.BigEndian.Uint64(want))), got)
			return
		}
		if !bytes.Equal(want, got.Bytes()) {
			t.Errorf("%s: %x, want %x", name, got.Bytes(), want)
		}
	case string:
		printed := fmt.Sprint(got)
		if got.Kind() == reflect.Slice {
			printed = string(got.Bytes())
		}
		if printed != want {
			t.Errorf("%s: %q, want %q", name, printed, want)
		}
	default:
		if printed := fmt.Sprintf("%d", got.Interface()); got.Kind() != reflect.Bool && printed != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %v", name, printed, want)
		}
		if got.Kind() == reflect.Bool && got.Bool() != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestEnvelopeVectorsRoundTrip(t *testing.T) {
	for _, e := range loadVectors(t).Envelopes {
		raw := unhex(t, e.Hex)
		got, err := DecodeEnvelope(raw)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		if again := AppendEnvelope(nil, &got); !bytes.Equal(again, raw) {
			t.Errorf("%s: encoded %x, want %x", e.Name, again, raw)
		}
		if got.Size() != len(raw) {
			t.Errorf("%s: size %d, want %d", e.Name, got.Size(), len(raw))
		}
		if got.Topic != e.Fields["topic"] || got.Reason != e.Fields["reason"] || got.Group != e.Fields["group"] ||
			float64(got.Offset) != e.Fields["offset"] || float64(got.Attempts) != e.Fields["attempts"] {
			t.Errorf("%s: decoded %+v, want %v", e.Name, got, e.Fields)
		}
	}
}
