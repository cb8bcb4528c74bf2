package kafka

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The walk of a request must end exactly where kmsg's encoding ends, for every
// API and version: otherwise a limit would be checked against the wrong bytes.
func TestShapesMatchEveryRequestOfEveryVersion(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for key := range shapes {
		fields, _ := shapeOf(key)
		req := kmsg.RequestForKey(key)
		for version := int16(0); version <= req.MaxVersion(); version++ {
			for range 20 {
				fill(r, reflect.ValueOf(req).Elem())
				req.SetVersion(version)
				body := req.AppendTo(nil)
				w := walker{rest: body, version: version, flexible: Flexible(key, version)}
				if err := w.structure(fields); err != nil || len(w.rest) != 0 {
					t.Fatalf("%s v%d: %d of %d bytes left, error %v\n%+v", kmsg.NameForKey(key), version, len(w.rest), len(body), err, req)
				}
			}
		}
	}
}

func TestLimitsAreCheckedBeforeAnythingIsAllocated(t *testing.T) {
	manyTopics := binary.BigEndian.AppendUint32(nil, MaxArray+1) // Metadata v0: array of strings
	manyTopics = append(manyTopics, make([]byte, 2*(MaxArray+1))...)

	manyTags := []byte{1, 1, 0} // ApiVersions v3: two empty strings, then tags
	manyTags = binary.AppendUvarint(manyTags[:2], MaxTags+1)
	for tag := range MaxTags + 1 {
		manyTags = append(binary.AppendUvarint(manyTags, uint64(tag)), 0)
	}

	longerThanFrame := binary.BigEndian.AppendUint32(nil, 30_000)
	longerThanFrame = append(longerThanFrame, make([]byte, harmless)...)

	for _, c := range []struct {
		name         string
		key, version int16
		body         []byte
	}{
		{"more elements than the limit", 3, 0, manyTopics},
		{"more tags than the limit", 18, 3, manyTags},
		{"more elements than bytes", 3, 0, longerThanFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := DecodeRequest(Header{Key: c.key, Version: c.version}, c.body)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v, want ErrMalformed", err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
				t.Errorf("allocated %d bytes before refusing", allocated)
			}
		})
	}
}

func TestArraysAndTagsUpToTheLimitAreAccepted(t *testing.T) {
	req := kmsg.NewPtrMetadataRequest()
	for range 50_000 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("orders")
		req.Topics = append(req.Topics, topic)
	}
	for _, version := range []int16{0, 8, 9, 13} {
		req.SetVersion(version)
		got, err := DecodeRequest(Header{Key: 3, Version: version}, req.AppendTo(nil))
		if err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		if n := len(got.(*kmsg.MetadataRequest).Topics); n != len(req.Topics) {
			t.Errorf("v%d: %d topics, want %d", version, n, len(req.Topics))
		}
	}
}
