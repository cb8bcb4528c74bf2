package kafka

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	wire "github.com/perigeemq/perigee/protocol/kafka"
)

func versionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "perigee-test", "1.0"
	return req
}

func TestApiVersionsListsTheTable(t *testing.T) {
	b := startBroker(t)
	for version := int16(0); version <= 5; version++ {
		resp := ask[*kmsg.ApiVersionsResponse](b.dial(), version, versionsRequest())
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(table) {
			t.Fatalf("v%d: error %d, %d keys, want %d", version, resp.ErrorCode, len(resp.ApiKeys), len(table))
		}
		for i, k := range resp.ApiKeys {
			if row := table[i]; k.ApiKey != row.key || k.MinVersion != row.min || k.MaxVersion != row.max {
				t.Errorf("v%d: %+v, want %+v", version, k, row)
			}
		}
		if version < 3 {
			continue
		}
		finalized := map[string]int16{}
		for _, f := range resp.FinalizedFeatures {
			finalized[f.Name] = f.MaxVersionLevel
		}
		if finalized["transaction.version"] != 2 || resp.FinalizedFeaturesEpoch < 0 {
			t.Errorf("v%d: features %v at epoch %d", version, finalized, resp.FinalizedFeaturesEpoch)
		}
	}
}

func TestFeatureEpochSurvivesARestart(t *testing.T) {
	b := startBroker(t)
	before := ask[*kmsg.ApiVersionsResponse](b.dial(), 4, versionsRequest()).FinalizedFeaturesEpoch
	b.restart()
	if after := ask[*kmsg.ApiVersionsResponse](b.dial(), 4, versionsRequest()).FinalizedFeaturesEpoch; after < before {
		t.Errorf("epoch %d after %d", after, before)
	}
}

// A version nobody knows gets a v0 body under a v0 header, error 35 and the range
// of ApiVersions itself, and the connection stays.
func TestUnknownApiVersionsVersionGetsAV0Answer(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	frame := []byte{0, 0, 0, 0, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := c.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	c.read(7, resp)
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
		t.Errorf("answer %+v", resp)
	}
	if again := ask[*kmsg.ApiVersionsResponse](c, 3, versionsRequest()); again.ErrorCode != 0 {
		t.Errorf("second request: error %d", again.ErrorCode)
	}
}

func TestApiVersionsRefusals(t *testing.T) {
	b := startBroker(t)
	for _, c := range []struct {
		name    string
		version int16
		edit    func(*kmsg.ApiVersionsRequest)
		want    *kerr.Error
	}{
		{"software name with a space", 3, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareName = "my client" }, kerr.InvalidRequest},
		{"no software version", 3, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareVersion = "" }, kerr.InvalidRequest},
		{"another cluster", 5, func(r *kmsg.ApiVersionsRequest) { r.ClusterID = kmsg.StringPtr("elsewhere") }, kerr.RebootstrapRequired},
		{"another node", 5, func(r *kmsg.ApiVersionsRequest) { r.NodeID = 4711 }, kerr.RebootstrapRequired},
		{"this cluster and node", 5, func(r *kmsg.ApiVersionsRequest) {
			r.ClusterID, r.NodeID = kmsg.StringPtr(b.coordinator.ClusterID()), b.config.NodeID
		}, nil},
	} {
		req := versionsRequest()
		c.edit(req)
		resp := ask[*kmsg.ApiVersionsResponse](b.dial(), c.version, req)
		if want := c.want; want == nil && resp.ErrorCode != 0 || want != nil && resp.ErrorCode != want.Code {
			t.Errorf("%s: error %d, want %v", c.name, resp.ErrorCode, want)
		}
	}
	if !strings.Contains(b.log.String(), "client software name or version refused") {
		t.Error("the refusal left no log line")
	}
}

// Every served API can be checked against the limits before it is decoded, and
// kmsg knows its versions.
func TestTableFitsTheCodec(t *testing.T) {
	for i, a := range table {
		if i > 0 && table[i-1].key >= a.key {
			t.Errorf("%s stands out of order", a.name)
		}
		if !wire.HasShape(a.key) {
			t.Errorf("%s has no shape", a.name)
		}
		if req := kmsg.RequestForKey(a.key); a.max > req.MaxVersion() {
			t.Errorf("%s up to v%d, kmsg to v%d", a.name, a.max, req.MaxVersion())
		}
	}
}

func TestUnservedRequestsCloseTheConnection(t *testing.T) {
	b := startBroker(t)
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"an API we do not serve", []byte{0, 4, 0, 0, 0, 0, 0, 1, 0xff, 0xff}},
		{"a version above ours", []byte{0, 1, 0, 99, 0, 0, 0, 1, 0xff, 0xff}},
		{"a header cut short", []byte{0, 1, 0}},
		{"a MoonMQ frame", append([]byte{0x01}, make([]byte, 40)...)},
		{"an array longer than its frame", []byte{0, 2, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := b.dial()
			conn.t = t
			if _, err := conn.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(c.frame))), c.frame...)); err != nil {
				t.Fatal(err)
			}
			conn.expectClosed()
		})
	}
}
