package kafka

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestsOfEveryVersionDecodeToWhatWasSent(t *testing.T) {
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("tests"))
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil || key == 7 { // ControlledShutdown: kmsg sends no body for v0
			continue
		}
		for version := int16(0); version <= req.MaxVersion(); version++ {
			req.SetVersion(version)
			frame := format.AppendRequest(nil, req, 42)[4:]
			h, body, err := ParseHeader(frame)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), version, err)
			}
			want := Header{Key: key, Version: version, Correlation: 42, ClientID: "tests"}
			if h != want {
				t.Errorf("header %+v, want %+v", h, want)
			}
			got, err := DecodeRequest(h, body)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), version, err)
			}
			if !bytes.Equal(got.AppendTo(nil), req.AppendTo(nil)) {
				t.Errorf("%s v%d changed on the way", kmsg.NameForKey(key), version)
			}
		}
	}
}

func TestHeaderRefusesWhatIsCutShort(t *testing.T) {
	for _, frame := range [][]byte{
		nil,
		{0, 18, 0, 0, 0, 0, 0},
		{0, 18, 0, 0, 0, 0, 0, 1, 0},               // client id without length
		{0, 18, 0, 0, 0, 0, 0, 1, 0, 5, 'a'},       // client id longer than the frame
		{0, 18, 0, 3, 0, 0, 0, 1, 0, 0},            // no tag section
		{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0, 200}, // tag longer than the frame
	} {
		if _, _, err := ParseHeader(frame); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: error %v, want ErrMalformed", frame, err)
		}
	}
}

func TestApiVersionsResponseHeaderIsAlwaysV0(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 3
	frame := AppendResponse(nil, 7, resp)
	back := kmsg.NewPtrApiVersionsResponse()
	back.Version = 3
	if err := back.ReadFrom(frame[8:]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(resp, back, cmpopts.IgnoreUnexported(kmsg.Tags{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// Whatever bytes arrive, decoding ends with a request or an error.
func FuzzDecodeRequest(f *testing.F) {
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c"))
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if req := kmsg.RequestForKey(key); req != nil {
			for version := int16(0); version <= req.MaxVersion(); version++ {
				req.SetVersion(version)
				f.Add(format.AppendRequest(nil, req, 1)[4:])
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil {
			return
		}
		if fields, ok := shapeOf(h.Key); ok {
			w := walker{rest: body, version: h.Version, flexible: Flexible(h.Key, h.Version)}
			w.structure(fields)
		}
		if req, err := DecodeRequest(h, body); err == nil {
			req.AppendTo(nil)
		}
	})
}
