package coordinator

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf16"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// offsetsShards is the number of partitions of __consumer_offsets, and of
// __perigee_attempts beside it. Kafka's default, which tools that look for a
// group's partition expect.
const offsetsShards = 50

// shardOf places a key among the partitions of an internal topic as Kafka does,
// so that tools which compute the partition of a group find it: the absolute
// value of Java's String.hashCode, 0 for the one number that has none, modulo
// the partitions.
func shardOf(key string, shards int32) int32 {
	var h int32
	var room [2]uint16
	for _, r := range key {
		for _, unit := range utf16.AppendRune(room[:0], r) {
			h = 31*h + int32(unit)
		}
	}
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h) % shards
}

// holdAscending locks shards for one decision that concerns several, each once,
// in the order everybody takes them.
func holdAscending[C, F any](shards []*machine.Shard[C, F]) ([]machine.Held[C, F], error) {
	slices.SortFunc(shards, func(a, b *machine.Shard[C, F]) int { return cmp.Compare(a.Index(), b.Index()) })
	return machine.HoldAll(slices.Compact(shards))
}
