package server

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// lagTime bounds how long a scrape waits for the groups' shards.
const lagTime = 5 * time.Second

// lags asks every group what it has committed and compares that with the logs.
// It is computed at a scrape and only then. What cannot be read is left out.
//
// The lock of a shard whose disk does not answer cannot be given up waiting for: so
// the reading has a goroutine of its own, and while that is stuck there is no other.
func (b *Broker) lags() []metrics.Group {
	ctx, cancel := context.WithTimeout(context.Background(), lagTime)
	defer cancel()
	return b.lagReader.within(ctx, b.readLags)
}

// lagReader lets one reading of the groups' lags run at a time.
type lagReader chan struct{} // capacity 1

// within returns what read returns, or nil when ctx ends first: it does not wait
// for a read that ignores ctx.
func (r lagReader) within(ctx context.Context, read func(context.Context) []metrics.Group) []metrics.Group {
	select {
	case r <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	result := make(chan []metrics.Group, 1)
	go func() {
		defer func() { <-r }()
		result <- read(ctx)
	}()
	select {
	case groups := <-result:
		return groups
	case <-ctx.Done():
		return nil
	}
}

func (b *Broker) readLags(ctx context.Context) []metrics.Group {
	list, err := b.coordinator.ListGroups()(ctx)
	if err != nil {
		return nil
	}
	groups := make([]metrics.Group, 0, len(list))
	ages := b.config.Metrics.MaxSeries // each costs a read of the disk
	for _, l := range list {
		committed, err := b.coordinator.FetchOffsets(group.FetchOffsets{Group: l.ID}).Wait(ctx)
		if err != nil {
			continue
		}
		g := metrics.Group{Name: l.ID, Members: l.Members}
		for _, c := range committed {
			o, ok := b.lag(c, ages > 0)
			if ok {
				ages--
				g.Offsets = append(g.Offsets, o)
			}
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(x, y metrics.Group) int { return cmp.Compare(x.Name, y.Name) })
	return groups
}

// lag compares one committed offset with its partition.
func (b *Broker) lag(c group.Committed, withAge bool) (o metrics.GroupOffset, ok bool) {
	t, ok := b.coordinator.Catalog().Topic(c.Topic)
	if !ok || c.Offset == model.NoOffset {
		return o, false
	}
	p, err := b.coordinator.Partition(t, c.Partition)
	if err != nil || p.Err() != nil {
		return o, false
	}
	high := p.Bounds().High
	o = metrics.GroupOffset{
		Topic: c.Topic, Partition: strconv.Itoa(int(c.Partition)),
		Committed: int64(c.Offset), Lag: max(0, int64(high-c.Offset)), LagSeconds: -1,
	}
	switch {
	case o.Lag == 0:
		o.LagSeconds = 0
	case withAge:
		o.LagSeconds = ageAt(p, c.Offset)
	}
	return o, true
}

// ageAt is the age in seconds of the batch at an offset, by its first record,
// negative when it cannot be read. An offset below the log's start counts as its
// start.
func ageAt(p *storage.Partition, at model.Offset) float64 {
	at = max(at, p.Bounds().Start)
	read, err := p.Read(storage.ReadRequest{From: at, MaxBytes: 1, MinOneBatch: true, Isolation: model.ReadUncommitted})
	if err != nil || read.Slice == nil {
		return -1
	}
	defer read.Slice.Release()
	f, pos, n := read.Slice.Region()
	head := make([]byte, min(n, batch.HeaderBytes))
	if _, err := f.ReadAt(head, pos); err != nil {
		return -1
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return -1
	}
	return max(0, time.Since(time.UnixMilli(int64(h.BaseTimestamp))).Seconds())
}
