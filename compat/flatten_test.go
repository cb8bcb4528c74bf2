package compat

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
)

// Fields that are not compared: they are the broker's own, the clock's, or words
// for people.
var uncompared = []string{
	"Version", "UnknownTags", "ThrottleMillis", "Host", "Port", "Rack", "ClusterID", "ErrorMessage", "Documentation",
	"CommitTimestamp", "StartTimestamp", "LastTimestamp", "StartTimestampMillis", "OffsetLag", "ApiKeys", "Size", "Dir", "LogDir", "TotalBytes", "UsableBytes",
	"FinalizedFeaturesEpoch", "SupportedFeatures", "FinalizedFeatures", "ClientHost", "SessionID", "NodeEndpoints", "Brokers",
}

// Fields that tell one element of a list from the others, best first.
var identities = []string{"Topic", "TopicID", "Partition", "Group", "GroupID", "MemberID", "TransactionalID", "ResourceName", "Name", "User", "Feature", "ProducerID", "Key", "NodeID"}

const day = 24 * time.Hour

// since names a time by how many milliseconds it is after the workload's first
// record; the broker's own time is "now".
func since(milliseconds int64) string {
	if milliseconds > time.Hour.Milliseconds() {
		return "now"
	}
	return fmt.Sprintf("first record + %d", milliseconds)
}

// flatten turns an answer into its fields by path. What the sides name
// differently (topics, members, producers, nodes) is named as in the workload.
func (s *side) flatten(resp kmsg.Response) map[string]string {
	out := map[string]string{}
	switch r := resp.(type) { // a broker with a past lists more than this conversation's
	case *kmsg.ListGroupsResponse:
		r.Groups = slices.DeleteFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return !strings.HasPrefix(g.Group, s.prefix) })
	case *kmsg.ListTransactionsResponse:
		r.TransactionStates = slices.DeleteFunc(r.TransactionStates, func(x kmsg.ListTransactionsResponseTransactionState) bool {
			return !strings.HasPrefix(x.TransactionalID, s.prefix)
		})
	}
	s.walk(out, "", "", reflect.ValueOf(resp).Elem())
	return out
}

func (s *side) walk(out map[string]string, path, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if strings.HasSuffix(path, "[__consumer_offsets]") && f.Name == "Partitions" {
				continue // it follows from the group's name, which the sides spell differently
			}
			if f.IsExported() && !slices.Contains(uncompared, f.Name) {
				s.walk(out, path+"."+f.Name, f.Name, v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			out[path] = s.bytes(name, v.Bytes())
			return
		}
		if out[path] = fmt.Sprint(v.Len()); v.IsNil() && name == "AbortedTransactions" {
			out[path] = "null"
		}
		for i := range v.Len() {
			s.walk(out, fmt.Sprintf("%s[%s]", path, s.identity(v.Index(i), i)), name, v.Index(i))
		}
	case reflect.Pointer:
		if v.IsNil() {
			out[path] = "null"
		} else {
			s.walk(out, path, name, v.Elem())
		}
	default:
		out[path] = s.scalar(name, v)
	}
}

// identity names an element of a list by what it is about; elements that are
// about nothing by their position.
func (s *side) identity(v reflect.Value, i int) string {
	if v.Kind() != reflect.Struct {
		if v.Kind() == reflect.String {
			return s.scalar("", v)
		}
		return fmt.Sprint(i)
	}
	for _, name := range identities {
		f := v.FieldByName(name)
		if !f.IsValid() || f.IsZero() && f.Kind() != reflect.Int32 {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		return s.scalar(name, f)
	}
	return fmt.Sprint(i)
}

func (s *side) scalar(name string, v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		if name == "ResourceName" && v.String() == fmt.Sprint(s.node) {
			return "the node"
		}
		return s.word(v.String())
	case reflect.Array: // a topic id
		id := v.Interface().([16]byte)
		if known, ok := s.ids[id]; ok {
			return "id of " + known
		}
		if id != [16]byte{} {
			return "an id"
		}
		return "no id"
	case reflect.Int32:
		switch name {
		case "Leader", "LeaderID", "ControllerID", "NodeID", "Replicas", "ISR", "OfflineReplicas":
			if int32(v.Int()) == s.node {
				return "the node"
			}
		}
	case reflect.Int64:
		if after := v.Int() - int64(recordTime); strings.Contains(name, "Time") && after >= 0 && after < day.Milliseconds() {
			return since(after)
		}
		if name == "ProducerID" {
			return s.producerName(v.Int())
		}
	}
	return fmt.Sprint(v.Interface())
}

// producerName is what the workload calls a producer id.
func (s *side) producerName(id int64) string {
	for _, known := range slices.Sorted(maps.Keys(s.producers)) {
		if s.producers[known].id == id {
			return known
		}
	}
	return fmt.Sprint(min(id, 0))
}

// word replaces a side's own names in a string.
func (s *side) word(w string) string {
	for known, m := range s.members {
		if m.id != "" && m.id == w {
			return "member " + known
		}
	}
	if s.prefix != "" {
		w = strings.ReplaceAll(w, s.prefix, "")
	}
	return w
}

// bytes shows records as what they say; other bytes as they are.
func (s *side) bytes(field string, b []byte) string {
	if field != "RecordBatches" {
		return fmt.Sprintf("%q", b)
	}
	var text strings.Builder
	for len(b) > 0 {
		v, rest, err := batch.Parse(b)
		if err != nil {
			fmt.Fprintf(&text, "[%v]", err)
			break
		}
		h := v.Header()
		fmt.Fprintf(&text, "[%d+%d attributes %b producer %s epoch %d sequence %d:", h.BaseOffset, h.Count, h.Attributes, s.producerName(int64(h.ProducerID)), h.ProducerEpoch, h.BaseSequence)
		for r, err := range v.Records(1 << 20) {
			fmt.Fprintf(&text, " %q=%q%v", r.Key, r.Value, err)
		}
		text.WriteString("]")
		b = rest
	}
	return text.String()
}
