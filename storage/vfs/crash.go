package vfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns what a machine finds after a power cut at this moment. With a nil
// rng it finds what was synced and nothing else. Otherwise any part of the rest
// may be there too: directory changes one by one, sectors of 512 bytes one by one
// or torn, and a length between the synced and the last. The same rng and the
// same history give the same outcome. The file system itself goes on unharmed, so
// that a test may cut many times.
func (m *Memory) Crash(rng *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &crash{rng: rng, dirs: map[*node]map[string]*node{}, made: map[*node]*node{}}
	for _, ch := range m.mu.pending {
		if c.luck() {
			ch.apply(c.entries)
		}
	}
	after := NewMemory()
	after.mu.total = m.mu.total
	after.mu.root = c.copy(m.mu.root)
	return after
}

type crash struct {
	rng  *rand.Rand
	dirs map[*node]map[string]*node // entries that survived, where they differ from the synced ones
	made map[*node]*node            // so that a file of two names stays one
}

// luck says whether something that was not synced is there all the same.
func (c *crash) luck() bool { return c.rng != nil && c.rng.IntN(2) == 0 }

func (c *crash) entries(n *node) map[string]*node {
	if c.dirs[n] == nil {
		c.dirs[n] = maps.Clone(n.synced)
	}
	return c.dirs[n]
}

// copy makes the survivor of a node.
func (c *crash) copy(n *node) *node {
	if done := c.made[n]; done != nil {
		return done
	}
	if !n.dir() {
		after := c.file(n)
		c.made[n] = after
		return after
	}
	after := newDir()
	c.made[n] = after
	entries := c.entries(n)
	for _, name := range sortedNames(entries) {
		child := c.copy(entries[name])
		after.entries[name], after.synced[name] = child, child
	}
	return after
}

func (c *crash) file(n *node) *node {
	after := &node{dirty: map[int]struct{}{}, pages: slices.Clone(n.syncedPages), size: c.size(n)}
	dirty := slices.Sorted(maps.Keys(n.dirty))
	for _, i := range dirty {
		c.page(n, after, i)
	}
	if keep := int((after.size + memoryPage - 1) / memoryPage); keep < len(after.pages) {
		after.pages = after.pages[:keep]
	}
	if rest := after.size % memoryPage; rest > 0 && after.page(after.size) != nil {
		cut := *after.page(after.size)
		clear(cut[rest:])
		after.pages[after.size/memoryPage] = &cut
	}
	after.syncedPages, after.syncedSize = slices.Clone(after.pages), after.size
	return after
}

// size is the length found: the synced one, the last one, or one between.
func (c *crash) size(n *node) int64 {
	if n.size == n.syncedSize || !c.luck() {
		return n.syncedSize
	}
	if c.luck() {
		return n.size
	}
	low, high := min(n.size, n.syncedSize), max(n.size, n.syncedSize)
	return low + c.rng.Int64N(high-low+1)
}

// page mixes the sectors of a dirty page with those that were synced.
func (c *crash) page(n, after *node, i int) {
	var before, last, mixed page
	if i < len(n.syncedPages) && n.syncedPages[i] != nil {
		before = *n.syncedPages[i]
	}
	if i < len(n.pages) && n.pages[i] != nil {
		last = *n.pages[i]
	}
	mixed = before
	for s := 0; s < memoryPage; s += memorySector {
		if bytes.Equal(before[s:s+memorySector], last[s:s+memorySector]) || !c.luck() {
			continue
		}
		n := memorySector
		if c.rng.IntN(8) == 0 {
			n = c.rng.IntN(memorySector)
		}
		copy(mixed[s:s+n], last[s:s+n])
	}
	for len(after.pages) <= i {
		after.pages = append(after.pages, nil)
	}
	after.pages[i] = &mixed
}

// Clone returns a copy of what a program sees now, all of it synced. It shares
// nothing that either side will change.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := NewMemory()
	after.mu.total = m.mu.total
	after.mu.root = m.mu.root.clone(map[*node]*node{})
	return after
}

func (n *node) clone(made map[*node]*node) *node {
	if done := made[n]; done != nil {
		return done
	}
	if !n.dir() {
		after := &node{dirty: map[int]struct{}{}, size: n.size, syncedSize: n.size}
		for _, pg := range n.pages {
			if pg != nil {
				copied := *pg
				pg = &copied
			}
			after.pages = append(after.pages, pg)
		}
		after.syncedPages = slices.Clone(after.pages)
		made[n] = after
		return after
	}
	after := newDir()
	made[n] = after
	for name, child := range n.entries {
		copied := child.clone(made)
		after.entries[name], after.synced[name] = copied, copied
	}
	return after
}
