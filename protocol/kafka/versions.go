package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys this package treats specially.
const (
	keyFetch       int16 = 1
	keyApiVersions int16 = 18
)

// never is a first flexible version above every version.
const never = 1<<15 - 1

// firstFlexible returns, by API key, the first version with flexible encoding.
var firstFlexible = sync.OnceValue(func() []int16 {
	first := make([]int16, kmsg.MaxKey+1)
	for key := range first {
		first[key] = never
		req := kmsg.RequestForKey(int16(key))
		if req == nil {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			if req.SetVersion(v); req.IsFlexible() {
				first[key] = v
				break
			}
		}
	}
	return first
})

// Flexible reports whether a version of an API uses the flexible encoding.
// Keys nobody defined do not.
func Flexible(key, version int16) bool {
	first := firstFlexible()
	return key >= 0 && int(key) < len(first) && version >= first[key]
}

// requestHeaderVersion returns 1 or 2. Version 0, without client id, existed
// only for ControlledShutdown v0, which no client sends.
func requestHeaderVersion(key, version int16) int16 {
	if Flexible(key, version) {
		return 2
	}
	return 1
}

// responseHeaderVersion returns 0 or 1.
func responseHeaderVersion(key, version int16) int16 {
	if key != keyApiVersions && Flexible(key, version) {
		return 1
	}
	return 0
}
