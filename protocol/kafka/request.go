package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DecodeRequest reads the body that follows h. Byte fields alias body, strings
// are copied. The version must be one kmsg knows; callers check it against
// their own, narrower table first.
func DecodeRequest(h Header, body []byte) (kmsg.Request, error) {
	req := kmsg.RequestForKey(h.Key)
	if req == nil || h.Version < 0 || h.Version > req.MaxVersion() {
		return nil, fmt.Errorf("%w: api key %d version %d", ErrMalformed, h.Key, h.Version)
	}
	req.SetVersion(h.Version)
	if err := checkShape(h.Key, h.Version, body); err != nil {
		return nil, fmt.Errorf("check %s v%d: %w", kmsg.NameForKey(h.Key), h.Version, err)
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: decode %s v%d: %v", ErrMalformed, kmsg.NameForKey(h.Key), h.Version, err)
	}
	return req, nil
}
