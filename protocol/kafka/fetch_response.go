package kafka

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Hole is a place in an encoded fetch response where records belong: Len bytes
// between the bytes before At and those from At on.
type Hole struct {
	At  int
	Len int
}

// AppendFetchResponse appends a whole response frame without its records. sizes
// holds the bytes of records of every partition, in the order of resp.Topics
// and their Partitions; RecordBatches in resp are ignored. The frame's length
// counts the records. A partition of size 0 gets an empty, not a null, record
// set and no hole.
//
// Serves versions 4 to 18. What they changed on this side: 5 log start offset,
// 7 session and top-level error, 11 preferred replica, 12 flexible and the tags
// for diverging epoch, current leader and snapshot, 13 topic ids, 16 node
// endpoints; the others changed only the request or the meaning of a code.
func AppendFetchResponse(dst []byte, holes []Hole, correlation int32, resp *kmsg.FetchResponse, sizes []int) ([]byte, []Hole) {
	start := len(dst)
	e := fetchEncoder{
		dst:      appendResponseHeader(dst, correlation, responseHeaderVersion(keyFetch, resp.Version)),
		holes:    holes,
		version:  resp.Version,
		flexible: Flexible(keyFetch, resp.Version),
	}
	e.response(resp, sizes)
	setLength(e.dst, start, len(e.dst)-start-4+e.recordBytes)
	return e.dst, e.holes
}

type fetchEncoder struct {
	dst         []byte
	holes       []Hole
	version     int16
	flexible    bool
	recordBytes int
}

func (e *fetchEncoder) response(resp *kmsg.FetchResponse, sizes []int) {
	e.int32(resp.ThrottleMillis)
	if e.version >= 7 {
		e.int16(resp.ErrorCode)
		e.int32(resp.SessionID)
	}
	e.count(len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if e.version >= 13 {
			e.dst = append(e.dst, t.TopicID[:]...)
		} else {
			e.string(t.Topic)
		}
		e.count(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j], sizes[0])
			sizes = sizes[1:]
		}
		e.noTags()
	}
	if e.flexible {
		e.brokers(resp.Brokers)
	}
}

func (e *fetchEncoder) partition(p *kmsg.FetchResponseTopicPartition, size int) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	e.int64(p.LastStableOffset)
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	e.aborted(p.AbortedTransactions)
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	if e.flexible {
		e.uvarint(uint32(size) + 1)
	} else {
		e.int32(int32(size))
	}
	if size > 0 {
		e.holes = append(e.holes, Hole{At: len(e.dst), Len: size})
		e.recordBytes += size
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

// aborted writes the list: null for read_uncommitted, which is not the same as
// empty.
func (e *fetchEncoder) aborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	switch {
	case list == nil && e.flexible:
		e.dst = append(e.dst, 0)
		return
	case list == nil:
		e.int32(-1)
		return
	}
	e.count(len(list))
	for _, t := range list {
		e.int64(t.ProducerID)
		e.int64(t.FirstOffset)
		e.noTags()
	}
}

// partitionTags writes the tags that are not at their default, in order. Each
// has a fixed size: its fields and an empty tag section of its own.
func (e *fetchEncoder) partitionTags(p *kmsg.FetchResponseTopicPartition) {
	diverging := p.DivergingEpoch.Epoch != -1 || p.DivergingEpoch.EndOffset != -1
	leader := p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1
	snapshot := p.SnapshotID.EndOffset != -1 || p.SnapshotID.Epoch != -1
	var n byte
	for _, set := range [...]bool{diverging, leader, snapshot} {
		if set {
			n++
		}
	}
	e.dst = append(e.dst, n)
	if diverging {
		e.dst = append(e.dst, 0, 13)
		e.int32(p.DivergingEpoch.Epoch)
		e.int64(p.DivergingEpoch.EndOffset)
		e.noTags()
	}
	if leader {
		e.dst = append(e.dst, 1, 9)
		e.int32(p.CurrentLeader.LeaderID)
		e.int32(p.CurrentLeader.LeaderEpoch)
		e.noTags()
	}
	if snapshot {
		e.dst = append(e.dst, 2, 13)
		e.int64(p.SnapshotID.EndOffset)
		e.int32(p.SnapshotID.Epoch)
		e.noTags()
	}
}

// brokers writes the tag section of the response: node endpoints, when there
// are any.
func (e *fetchEncoder) brokers(list []kmsg.FetchResponseBroker) {
	if len(list) == 0 {
		e.noTags()
		return
	}
	content := fetchEncoder{version: e.version, flexible: true}
	content.count(len(list))
	for _, b := range list {
		content.int32(b.NodeID)
		content.string(b.Host)
		content.int32(b.Port)
		if b.Rack == nil {
			content.dst = append(content.dst, 0)
		} else {
			content.string(*b.Rack)
		}
		content.noTags()
	}
	e.dst = append(e.dst, 1, 0) // one field, tag 0
	e.uvarint(uint32(len(content.dst)))
	e.dst = append(e.dst, content.dst...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.dst = append(e.dst, 0)
	}
}

func (e *fetchEncoder) count(n int) {
	if e.flexible {
		e.uvarint(uint32(n) + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(uint32(len(s)) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

func (e *fetchEncoder) uvarint(n uint32) { e.dst = binary.AppendUvarint(e.dst, uint64(n)) }
func (e *fetchEncoder) int16(n int16)    { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(n)) }
func (e *fetchEncoder) int32(n int32)    { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(n)) }
func (e *fetchEncoder) int64(n int64)    { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(n)) }
