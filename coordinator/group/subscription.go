package group

import (
	"maps"
	"slices"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// The two structures consumers put into a group's opaque bytes, as far as the
// broker needs them: which topics are read, and what is assigned.
//
//	subscription ┌ i16 version ┬ array of str topic ┬ bytes user data ┬ newer fields … ┐
//	assignment   ┌ i16 version ┬ array of (str topic ┬ array of i32 partition) ┬ bytes user data ┐

// subscribed returns the topics the members read. known is false if the group
// does not speak the consumer protocol or a member's bytes make no sense.
func (g *group) subscribed() (topics []string, known bool) {
	if len(g.members) == 0 {
		return nil, true
	}
	if g.protocolType == MoonProtocol {
		for _, m := range g.members {
			topics = append(topics, m.topics...)
		}
		return topics, true
	}
	if g.protocolType != consumerProtocol || g.protocol == "" {
		return nil, false
	}
	for _, m := range g.members {
		own, err := decodeSubscription(m.metadata(g.protocol))
		if err != nil {
			return nil, false
		}
		topics = append(topics, own...)
	}
	return topics, true
}

func decodeSubscription(b []byte) ([]string, error) {
	r := machine.NewReader(b)
	r.Int16()
	var topics []string
	for range r.Count(2) {
		topics = append(topics, r.String())
	}
	return topics, r.Err()
}

// EncodeSubscription writes version 0 of a consumer's subscription, so that
// Kafka's tools can show what a MoonMQ member reads.
func EncodeSubscription(topics []string) []byte {
	var w machine.Writer
	w.Int16(0)
	w.Int32(int32(len(topics)))
	for _, t := range topics {
		w.String(t)
	}
	w.Int32(-1)
	return w.Bytes()
}

// EncodeAssignment writes version 0 of a consumer's assignment.
func EncodeAssignment(assigned map[string][]int32) []byte {
	var w machine.Writer
	w.Int16(0)
	w.Int32(int32(len(assigned)))
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		w.String(topic)
		w.Int32(int32(len(assigned[topic])))
		for _, p := range assigned[topic] {
			w.Int32(p)
		}
	}
	w.Int32(-1)
	return w.Bytes()
}
