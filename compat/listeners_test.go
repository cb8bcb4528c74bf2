package compat

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every answer that names a broker names the address of the listener the client
// came by.
func TestEachListenerAdvertisesItself(t *testing.T) {
	b := startBroker(t, "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0", "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
		"inter.broker.listener.name=INSIDE", "advertised.listeners=INSIDE://inside.example:1111,OUTSIDE://outside.example:2222")
	for listener, want := range map[string]string{"INSIDE": "inside.example:1111", "OUTSIDE": "outside.example:2222"} {
		w := dial(t, b.KafkaAddr(listener).String())
		metadata := ask[*kmsg.MetadataResponse](t, w, 12, metadataOf()).Brokers[0]
		cluster := ask[*kmsg.DescribeClusterResponse](t, w, 1, kmsg.NewPtrDescribeClusterRequest()).Brokers[0]
		coordinator := ask[*kmsg.FindCoordinatorResponse](t, w, 4, findCoordinator(4, 0, "g")).Coordinators[0]
		for api, got := range map[string]string{
			"Metadata":        fmt.Sprintf("%s:%d", metadata.Host, metadata.Port),
			"DescribeCluster": fmt.Sprintf("%s:%d", cluster.Host, cluster.Port),
			"FindCoordinator": fmt.Sprintf("%s:%d", coordinator.Host, coordinator.Port),
		} {
			if got != want {
				t.Errorf("%s by %s names %s, want %s", api, listener, got, want)
			}
		}
	}
}
