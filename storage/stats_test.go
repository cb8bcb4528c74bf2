package storage

import "testing"

func TestStatsDoNotWaitForAnAppend(t *testing.T) {
	p := &Partition{e: &Engine{}}
	p.config.Store(&PartitionConfig{})
	p.counts.Store(&producerCounts{producers: 3, openTxns: 2, aborted: 1})
	p.mu.Lock() // as an append that writes to a stuck disk does
	s := p.Stats()
	if s.Producers != 3 || s.OpenTxns != 2 || s.Aborted != 1 {
		t.Errorf("stats during an append: %+v, want the counts seen before", s)
	}
	p.mu.Unlock()
	if s := p.Stats(); s.Producers != 0 || s.OpenTxns != 0 || s.Aborted != 0 {
		t.Errorf("stats after it: %+v", s)
	}
}
