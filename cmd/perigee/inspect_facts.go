package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// factReport is one record of an internal topic, decoded as a start decodes it. The
// fields of Fact are those of the program's own types, which are no interface.
type factReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Type      string `json:"type"`
	Fact      any    `json:"fact"`
	Error     string `json:"error,omitempty"`
}

// factDecoders are the internal topics that hold facts.
var factDecoders = map[string]func(machine.Record) (any, error){
	catalog.CatalogTopic:      func(r machine.Record) (any, error) { return catalog.Codec{}.Decode(r) },
	catalog.OffsetsTopic:      func(r machine.Record) (any, error) { return group.Codec{}.Decode(r) },
	catalog.AttemptsTopic:     func(r machine.Record) (any, error) { return group.Codec{}.Decode(r) },
	catalog.TransactionsTopic: func(r machine.Record) (any, error) { return txn.Codec{}.Decode(r) },
}

func newInspectFactsCommand(s *session) *cobra.Command {
	var f offlineFlags
	c := &cobra.Command{
		Use:   "facts [TOPIC[:PARTITION,...]...]",
		Short: "Print the records of internal topics, decoded: " + strings.Join(sortedKeys(factDecoders), ", "),
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, a := range args {
				topic, _, _ := strings.Cut(a, ":")
				if factDecoders[topic] == nil {
					return usagef("%s holds no facts; these do: %s", topic, strings.Join(sortedKeys(factDecoders), ", "))
				}
			}
			return nil
		},
		RunE: s.withDataDir(&f, func(d *dataDir, out *output, args []string) error {
			partitions, err := d.chosen(args)
			if err != nil {
				return err
			}
			results := []factReport{}
			for _, p := range partitions {
				if decode := factDecoders[p.name]; decode != nil {
					results = append(results, readFacts(out, p, decode)...)
				}
			}
			t := table{header: []string{"TOPIC", "PARTITION", "OFFSET", "TYPE", "FACT"}}
			for _, r := range results {
				fact, err := json.Marshal(r.Fact)
				if err != nil {
					return fmt.Errorf("print fact: %w", err)
				}
				t.add(r.Topic, r.Partition, r.Offset, r.Type, string(fact))
			}
			return out.print(results, t)
		}),
	}
	f.add(c.Flags())
	return c
}

func readFacts(out *output, p storedPartition, decode func(machine.Record) (any, error)) []factReport {
	var all []factReport
	for _, s := range p.segments {
		err := s.batches(func(v batch.View, _ int64) error {
			return eachFact(v, func(r machine.Record) error {
				report := factReport{Topic: p.name, Partition: p.Partition, Offset: int64(r.Offset), Timestamp: int64(r.Timestamp)}
				fact, err := decode(r)
				if err != nil {
					report.Error = message(err)
					out.item(fmt.Sprintf("%s/%d offset %d", p.name, p.Partition, r.Offset), err)
				} else {
					report.Type, report.Fact = strings.TrimPrefix(fmt.Sprintf("%T", fact), "*"), plainTree(reflect.ValueOf(fact))
				}
				all = append(all, report)
				return nil
			})
		})
		if err != nil {
			out.item(s.Path(), err)
		}
	}
	return all
}

// eachFact turns a batch into the records a machine replays.
func eachFact(v batch.View, fn func(machine.Record) error) error {
	control := machine.NotControl
	if v.IsControl() {
		m, err := v.Marker()
		if err != nil {
			return err
		}
		control = machine.Abort
		if m.Type == batch.Commit {
			control = machine.Commit
		}
	}
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			return err
		}
		if err := fn(machine.Record{
			Key: r.Key, Value: r.Value, Offset: r.Offset, Timestamp: r.Timestamp, Control: control,
			Producer:      model.ProducerIdentity{ID: v.ProducerID(), Epoch: v.ProducerEpoch()},
			Transactional: v.IsTransactional(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// plainTree makes any value one of maps, lists, text and numbers, also where its
// fields are private to a package. What is empty, and what only lives in memory
// (locks, promises, points in time), is left out.
func plainTree(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plainTree(v.Elem())
	case reflect.Struct:
		fields := map[string]any{}
		for i := range v.NumField() {
			f := v.Field(i)
			if f.IsZero() || f.Type() == reflect.TypeFor[time.Time]() || strings.HasPrefix(v.Type().Field(i).Type.String(), "*machine.Promise") {
				continue
			}
			if v.Type() == reflect.TypeFor[catalog.Credential]() && f.Kind() == reflect.Slice {
				fields[v.Type().Field(i).Name] = "(secret)"
				continue
			}
			fields[v.Type().Field(i).Name] = plainTree(f)
		}
		return fields
	case reflect.Map:
		entries := map[string]any{}
		for _, key := range v.MapKeys() {
			entries[fmt.Sprint(plainTree(key))] = plainTree(v.MapIndex(key))
		}
		return entries
	case reflect.Slice, reflect.Array:
		return plainList(v)
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v.Uint()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			return time.Duration(v.Int()).String()
		}
		return v.Int()
	}
	return v.Type().String()
}

func plainList(v reflect.Value) any {
	if v.Type() == reflect.TypeFor[model.TopicID]() {
		var id model.TopicID
		for i := range id {
			id[i] = byte(v.Index(i).Uint())
		}
		return id.String()
	}
	if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
		return v.Bytes()
	}
	list := []any{}
	for i := range v.Len() {
		list = append(list, plainTree(v.Index(i)))
	}
	return list
}
