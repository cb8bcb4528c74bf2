package storage

import (
	"hash/maphash"
	"unsafe"

	"github.com/perigeemq/perigee/storage/model"
)

// keyMap remembers the last offset of each key within a fixed amount of memory.
// It stores a 128-bit hash in place of the key: with random seeds nobody can make
// two keys collide, and by chance two of 2^32 keys do so once in 2^64 compactions.
//
// The table has open addressing and doubles from small, so that a small topic
// costs little; at its limit it says so and the rest is left to the next pass.
type keyMap struct {
	seeds [2]maphash.Seed
	slots []keySlot // a power of two
	used  int
	limit int // largest number of slots
}

type keySlot struct {
	hash [2]uint64
	next model.Offset // offset of the key's last record plus one; 0 marks a free slot
}

const (
	slotBytes = int64(unsafe.Sizeof(keySlot{}))
	leastKeys = 64
)

// newKeyMap returns an empty map that will not use more memory than given, if that
// is enough for leastKeys keys. While it grows, the old and the new table together
// stay within it.
func newKeyMap(memoryBytes int64) *keyMap {
	m := &keyMap{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, limit: leastKeys}
	for int64(m.limit)*2*slotBytes*3/2 <= memoryBytes {
		m.limit *= 2
	}
	m.slots = make([]keySlot, leastKeys)
	return m
}

// put remembers an offset, larger than those before, for a key; false when the
// key is new and there is no room.
func (m *keyMap) put(key []byte, o model.Offset) bool {
	h := m.hash(key)
	s := m.slot(h)
	if s.next == 0 {
		if m.full(len(m.slots)) {
			if len(m.slots) >= m.limit {
				return false
			}
			m.grow()
			s = m.slot(h)
		}
		m.used++
	}
	s.hash, s.next = h, o+1
	return true
}

// last is the last offset remembered for a key.
func (m *keyMap) last(key []byte) (model.Offset, bool) {
	s := m.slot(m.hash(key))
	return s.next - 1, s.next > 0
}

func (m *keyMap) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
}

// slot is where a hash stands, or the free slot where it would.
func (m *keyMap) slot(h [2]uint64) *keySlot {
	mask := uint64(len(m.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		if s := &m.slots[i]; s.next == 0 || s.hash == h {
			return s
		}
	}
}

// full says that a table of so many slots takes no more keys: searches get long
// beyond seven eighths.
func (m *keyMap) full(slots int) bool { return m.used >= slots/8*7 }

func (m *keyMap) grow() {
	old := m.slots
	m.slots = make([]keySlot, 2*len(old))
	for i := range old {
		if old[i].next > 0 {
			*m.slot(old[i].hash) = old[i]
		}
	}
}
