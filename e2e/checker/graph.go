package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dependencies builds the graph of who depends on whom and looks for cycles.
//
//	wr: one read what the other wrote        alone in a cycle: I6 (G1c)
//	ww: one wrote behind the other           legal, counted
func (c *check) dependencies() {
	n := len(c.h.Txns)
	index := make(map[*Txn]int, n)
	for i := range c.h.Txns {
		index[&c.h.Txns[i]] = i
	}
	wr, ww := make([][]int, n), make([][]int, n)
	for i := range c.h.Txns {
		for _, v := range c.h.Txns[i].Reads {
			if writer := c.origins[v].txn; writer != nil && writer != &c.h.Txns[i] {
				wr[index[writer]] = append(wr[index[writer]], i)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.h.Final.Committed)) {
		previous := -1
		for _, r := range c.h.Final.Committed[p] {
			t := c.origins[r.Value].txn
			if t == nil {
				continue
			}
			if i := index[t]; previous >= 0 && previous != i {
				ww[previous] = append(ww[previous], i)
			}
			previous = index[t]
		}
	}
	for _, cycle := range cycles(wr) {
		var names []string
		for _, i := range cycle {
			names = append(names, c.h.Txns[i].name())
		}
		c.flag("I6", "they read from each other in a circle: %s", strings.Join(names, "; "))
	}
	both := make([][]int, n)
	for i := range both {
		both[i] = slices.Concat(wr[i], ww[i])
	}
	c.report.WWCycles = len(cycles(both))
}

// cycles returns the strongly connected components of more than one node
// (Tarjan, with an explicit stack: histories are long).
func cycles(edges [][]int) [][]int {
	s := scc{edges: edges, index: make([]int, len(edges)), low: make([]int, len(edges)), on: make([]bool, len(edges))}
	for v := range edges {
		if s.index[v] == 0 {
			s.visit(v)
		}
	}
	return s.found
}

type scc struct {
	edges      [][]int
	index, low []int // from 1; 0 is unvisited
	on         []bool
	stack      []int
	clock      int
	found      [][]int
}

type frame struct{ v, edge int }

func (s *scc) visit(root int) {
	frames := []frame{s.enter(root)}
	for len(frames) > 0 {
		f := &frames[len(frames)-1]
		if f.edge < len(s.edges[f.v]) {
			w := s.edges[f.v][f.edge]
			f.edge++
			switch {
			case s.index[w] == 0:
				frames = append(frames, s.enter(w))
			case s.on[w]:
				s.low[f.v] = min(s.low[f.v], s.index[w])
			}
			continue
		}
		v := f.v
		frames = frames[:len(frames)-1]
		if len(frames) > 0 {
			parent := frames[len(frames)-1].v
			s.low[parent] = min(s.low[parent], s.low[v])
		}
		s.leave(v)
	}
}

func (s *scc) enter(v int) frame {
	s.clock++
	s.index[v], s.low[v] = s.clock, s.clock
	s.stack = append(s.stack, v)
	s.on[v] = true
	return frame{v: v}
}

func (s *scc) leave(v int) {
	if s.low[v] != s.index[v] {
		return
	}
	cut := slices.Index(s.stack, v)
	component := slices.Clone(s.stack[cut:])
	s.stack = s.stack[:cut]
	for _, w := range component {
		s.on[w] = false
	}
	if len(component) > 1 {
		s.found = append(s.found, component)
	}
}

// String is the summary a run prints.
func (r Report) String() string {
	return fmt.Sprintf("%d transactions (%d committed, %d aborted, %d undecided), %d values, %d legal write cycles, %d anomalies",
		r.Txns, r.Committed, r.Aborted, r.Undecided, r.Values, r.WWCycles, len(r.Anomalies))
}
