package metrics

// Group is a consumer group with what it has committed.
type Group struct {
	Name    string
	Members int
	Offsets []GroupOffset // by topic and partition
}

// GroupOffset is one committed offset and how far it is behind.
type GroupOffset struct {
	Topic, Partition string
	Committed, Lag   int64
	// LagSeconds is the age of the record at the committed offset, 0 when there is
	// none; negative when it is not known.
	LagSeconds float64
}

// topicSums adds up a group's offsets by topic, which are in order.
func (g *Group) topicSums() []topicSum {
	var sums []topicSum
	for _, o := range g.Offsets {
		if n := len(sums); n == 0 || sums[n-1].topic != o.Topic {
			sums = append(sums, topicSum{topic: o.Topic})
		}
		last := &sums[len(sums)-1]
		last.committed += o.Committed
		last.lag += o.Lag
	}
	return sums
}

type topicSum struct {
	topic          string
	committed, lag int64
}

func (c *Collector) collectGroups(out emitter, s Snapshot) {
	left := c.MaxSeries
	for i := range s.Groups {
		g := &s.Groups[i]
		out.gauge(groupMembers, "Members of the group.", float64(g.Members), labels{"group": g.Name})
		for _, sum := range g.topicSums() {
			out.gauge(groupLagSum, "Records of a topic behind the group's committed offsets.", float64(sum.lag), labels{"group": g.Name, "topic": sum.topic})
		}
		for _, o := range g.Offsets {
			if left--; left < 0 {
				break
			}
			l := labels{"group": g.Name, "topic": o.Topic, "partition": o.Partition}
			out.gauge(groupCommitted, "Committed offset.", float64(o.Committed), l)
			out.gauge(groupLag, "Records between the committed offset and the high watermark.", float64(o.Lag), l)
			if o.LagSeconds >= 0 {
				out.gauge(groupLagTime, "Age of the batch at the committed offset; 0 when the group has read everything.", o.LagSeconds, l)
			}
		}
	}
	out.gauge(groups, "Consumer groups.", float64(len(s.Groups)), nil)
}
