package kafka

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Our encoder and kmsg's give the same bytes, for every version we serve, once
// the records are put into the holes.
func TestFetchResponseEqualsKmsg(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for version := int16(4); version <= 18; version++ {
		for range 200 {
			resp := kmsg.NewPtrFetchResponse()
			fill(r, reflect.ValueOf(resp).Elem())
			resp.Version = version
			var sizes []int
			var records [][]byte
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					p := &resp.Topics[i].Partitions[j]
					sizes = append(sizes, len(p.RecordBatches))
					if len(p.RecordBatches) > 0 {
						records = append(records, p.RecordBatches)
					}
					soften(r, p)
				}
			}

			head, holes := AppendFetchResponse(nil, nil, 77, resp, sizes)

			var got []byte
			from := 0
			for i, h := range holes {
				got = append(append(got, head[from:h.At]...), records[i]...)
				from = h.At
			}
			got = append(got, head[from:]...)
			if want := AppendResponse(nil, 77, resp); !bytes.Equal(got, want) {
				t.Fatalf("v%d:\n got %x\nwant %x\n%+v", version, got, want, resp)
			}
		}
	}
}

// soften returns some tagged structures to their defaults, so that every
// combination of present and absent tags occurs.
func soften(r *rand.Rand, p *kmsg.FetchResponseTopicPartition) {
	if r.IntN(2) == 0 {
		p.DivergingEpoch.Default()
	}
	if r.IntN(2) == 0 {
		p.CurrentLeader.Default()
	}
	if r.IntN(2) == 0 {
		p.SnapshotID.Default()
	}
	if r.IntN(3) == 0 {
		p.AbortedTransactions = nil
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 18
	topic := kmsg.NewFetchResponseTopic()
	var sizes []int
	for i := range 10 {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition = int32(i)
		topic.Partitions = append(topic.Partitions, p)
		sizes = append(sizes, 1<<20)
	}
	resp.Topics = append(resp.Topics, topic)
	var dst []byte
	var holes []Hole
	b.ReportAllocs()
	for b.Loop() { // models one fetch of ten full partitions
		dst, holes = AppendFetchResponse(dst[:0], holes[:0], 1, resp, sizes)
	}
}
