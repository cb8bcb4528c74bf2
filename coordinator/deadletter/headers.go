package deadletter

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// The headers of a dead record, their values in text.
const (
	HeaderTopic      = "__dlq.errors.topic"
	HeaderPartition  = "__dlq.errors.partition"
	HeaderOffset     = "__dlq.errors.offset"
	HeaderGroup      = "__dlq.errors.group"
	HeaderDeliveries = "__dlq.errors.delivery.count"
	HeaderMessage    = "__dlq.errors.message"
	HeaderTimestamp  = "__perigee.dlq.timestamp" // of the record that died, ms

	// HeaderPointer is "true" on a dead record whose value was left in the source
	// topic.
	HeaderPointer = "__perigee.dlq.pointer"
	// HeaderReplays counts how often a record was redriven.
	HeaderReplays = "__perigee.dlq.replays"
)

// Provenance is where a dead record came from and why it is here.
type Provenance struct {
	Topic      string
	Partition  int32           // from 0; -1 unknown
	Offset     model.Offset    // model.NoOffset unknown
	Timestamp  model.Timestamp // of the record that died; model.NoTimestamp unknown
	Group      string
	Deliveries int // 0 unknown
	Reason     string
}

// Headers returns the record's own headers with the provenance behind them.
func Headers(own batch.Headers, p Provenance) []batch.RecordHeader {
	all := slices.Collect(own.All())
	add := func(key, value string) {
		all = append(all, batch.RecordHeader{Key: key, Value: []byte(value)})
	}
	add(HeaderTopic, p.Topic)
	add(HeaderPartition, strconv.Itoa(int(p.Partition)))
	add(HeaderOffset, strconv.FormatInt(int64(p.Offset), 10))
	add(HeaderGroup, p.Group)
	add(HeaderDeliveries, strconv.Itoa(p.Deliveries))
	add(HeaderMessage, p.Reason)
	add(HeaderTimestamp, strconv.FormatInt(int64(p.Timestamp), 10))
	return all
}

// Ours reports whether a header belongs to a dead record's provenance and
// not to the record itself.
func Ours(key string) bool {
	switch key {
	case HeaderTopic, HeaderPartition, HeaderOffset, HeaderGroup, HeaderDeliveries, HeaderMessage, HeaderTimestamp, HeaderPointer:
		return true
	}
	return false
}

// Deaths reads every provenance Perigee or Kafka wrote, oldest first: one for
// each time the record died. Values that are not numbers are unknown.
func Deaths(headers []batch.RecordHeader) []Provenance {
	var deaths []Provenance
	for _, h := range headers {
		if h.Key == HeaderTopic {
			deaths = append(deaths, unknown())
		}
		if len(deaths) == 0 {
			continue
		}
		last, text := &deaths[len(deaths)-1], string(h.Value)
		switch h.Key {
		case HeaderTopic:
			last.Topic = text
		case HeaderPartition:
			last.Partition = int32(number(text, 32))
		case HeaderOffset:
			last.Offset = model.Offset(number(text, 64))
		case HeaderGroup:
			last.Group = text
		case HeaderDeliveries:
			last.Deliveries = max(int(number(text, 32)), 0)
		case HeaderMessage:
			last.Reason = text
		case HeaderTimestamp:
			last.Timestamp = model.Timestamp(number(text, 64))
		}
	}
	return deaths
}

// convention is how another system spells a provenance. An empty name means
// that it has no such header.
type convention struct {
	topic, partition, offset, timestamp, group, reason string
}

// conventions, in the order they are tried.
var conventions = []convention{
	{ // Spring for Apache Kafka: numbers as big-endian bytes
		topic: "kafka_dlt-original-topic", partition: "kafka_dlt-original-partition",
		offset: "kafka_dlt-original-offset", timestamp: "kafka_dlt-original-timestamp",
		group: "kafka_dlt-original-consumer-group", reason: "kafka_dlt-exception-message",
	},
	{ // Kafka Connect, with errors.deadletterqueue.context.headers.enable
		topic: "__connect.errors.topic", partition: "__connect.errors.partition",
		offset: "__connect.errors.offset", group: "__connect.errors.connector.name",
		reason: "__connect.errors.exception.message",
	},
	{ // Spring Cloud Stream
		topic: "x-original-topic", partition: "x-original-partition", offset: "x-original-offset",
		timestamp: "x-original-timestamp", reason: "x-exception-message",
	},
}

// Find reads the newest provenance of a record, whoever wrote it. False means
// that nothing says where the record came from.
func Find(headers []batch.RecordHeader) (Provenance, bool) {
	if deaths := Deaths(headers); len(deaths) > 0 {
		return deaths[len(deaths)-1], true
	}
	for _, c := range conventions {
		if topic, ok := last(headers, c.topic); ok {
			return c.read(string(topic), headers), true
		}
	}
	return Provenance{}, false
}

func (c convention) read(topic string, headers []batch.RecordHeader) Provenance {
	p := unknown()
	p.Topic = topic
	if v, ok := last(headers, c.partition); ok {
		p.Partition = int32(foreignNumber(v, 32))
	}
	if v, ok := last(headers, c.offset); ok {
		p.Offset = model.Offset(foreignNumber(v, 64))
	}
	if v, ok := last(headers, c.timestamp); ok {
		p.Timestamp = model.Timestamp(foreignNumber(v, 64))
	}
	if v, ok := last(headers, c.group); ok {
		p.Group = printable(v)
	}
	if v, ok := last(headers, c.reason); ok {
		p.Reason = printable(v)
	}
	return p
}

// Foreign reports whether a header is another system's note about a dead record.
func Foreign(key string) bool {
	for _, prefix := range []string{"kafka_dlt-", "__connect.errors.", "x-original-", "x-exception-"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Replays reads how often a record was redriven.
func Replays(headers []batch.RecordHeader) int {
	v, _ := last(headers, HeaderReplays)
	return max(int(number(string(v), 32)), 0)
}

func unknown() Provenance {
	return Provenance{Partition: -1, Offset: model.NoOffset, Timestamp: model.NoTimestamp}
}

// last returns the value of the last header of a name.
func last(headers []batch.RecordHeader, key string) ([]byte, bool) {
	if key == "" {
		return nil, false
	}
	for _, h := range slices.Backward(headers) {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}

// number reads decimal text, -1 for anything else.
func number(text string, bits int) int64 {
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return -1
	}
	return n
}

// foreignNumber reads a number that may be four or eight big-endian bytes, or
// text, quoted or not: four digits are text, since no real partition or offset
// is a number above 800 million in both readings.
func foreignNumber(v []byte, bits int) int64 {
	if n := number(strings.Trim(string(v), `"`), bits); n >= 0 {
		return n
	}
	switch len(v) {
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	return -1
}

// printable is a text header's value; bytes that are no text become readable.
func printable(v []byte) string {
	if utf8.Valid(v) {
		return string(v)
	}
	return strconv.QuoteToASCII(string(v))
}
