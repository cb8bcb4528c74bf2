package kafka

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// softwareName is Kafka's rule for client software names and versions
// (KIP-511). They end up in metrics and log lines.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions serves ApiVersions 0 to 5: 1 adds the throttle time, 3 is flexible
// and names the client's software and our features, 4 allows features whose
// lowest level is 0, 5 lets a client say which broker it means to reach
// (KIP-1242).
func apiVersions(s *session, r *request) reply {
	req := r.body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if r.version >= 3 {
		if !softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion) {
			s.log.Warn().Str("client_id", r.clientID).Str("software", req.ClientSoftwareName).Str("software_version", req.ClientSoftwareVersion).
				Stringer("remote", s.conn.RemoteAddr()).Msg("client software name or version refused")
			resp.ErrorCode = kerr.InvalidRequest.Code
			return now(resp)
		}
		s.software, s.softwareVersion = req.ClientSoftwareName, req.ClientSoftwareVersion
	}
	if r.version >= 5 && s.meantForAnother(req) {
		resp.ErrorCode = kerr.RebootstrapRequired.Code
		return now(resp)
	}
	resp.ApiKeys = apiRanges
	if r.version >= 3 {
		s.describeFeatures(r.version, resp)
	}
	return now(resp)
}

// meantForAnother reports whether the client names a cluster or a node that we
// are not.
func (s *session) meantForAnother(req *kmsg.ApiVersionsRequest) bool {
	return req.ClusterID != nil && *req.ClusterID != s.coordinator.ClusterID() ||
		req.NodeID >= 0 && req.NodeID != s.config.NodeID
}

// apiRanges is the table as ApiVersions tells it. It is shared by all answers
// and never changed.
var apiRanges []kmsg.ApiVersionsResponseApiKey

func init() {
	for _, a := range table {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		apiRanges = append(apiRanges, k)
	}
}

// unsupported is the answer to a version of ApiVersions we do not know: a v0
// body, whatever was asked, with our own range, so that the client can ask again.
type unsupported struct{ *kmsg.ApiVersionsResponse }

func unsupportedApiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	k := kmsg.NewApiVersionsResponseApiKey()
	a := apiFor(keyApiVersions)
	k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
	resp.ApiKeys = append(resp.ApiKeys, k)
	return &unsupported{resp}
}

// describeFeatures tells what we support and what is finalized (KIP-584).
// Versions below 4 cannot express a lowest level of 0 and leave such features
// out of the supported list; what is finalized stays.
func (s *session) describeFeatures(version int16, resp *kmsg.ApiVersionsResponse) {
	for _, f := range catalog.SupportedFeatures {
		if f.Min == 0 && version < 4 {
			continue
		}
		k := kmsg.NewApiVersionsResponseSupportedFeature()
		k.Name, k.MinVersion, k.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, k)
	}
	features := s.coordinator.Catalog().Features()
	resp.FinalizedFeaturesEpoch = features.Epoch
	for _, f := range catalog.SupportedFeatures {
		if level := features.Level(f.Name); level > 0 {
			k := kmsg.NewApiVersionsResponseFinalizedFeature()
			k.Name, k.MinVersionLevel, k.MaxVersionLevel = f.Name, level, level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, k)
		}
	}
}
