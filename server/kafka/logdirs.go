package kafka

import (
	"context"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// describeLogDirs serves DescribeLogDirs 0 to 5: 2 is flexible, 3 has an error
// for all, 4 tells the volume's size and room, 5 whether a directory takes new
// partitions. There is one directory.
func describeLogDirs(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeLogDirsRequest)
	durable := s.coordinator.ReadCatalog()
	return func(ctx context.Context) kmsg.Response {
		snapshot, err := durable.Wait(ctx)
		resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		if err != nil {
			resp.ErrorCode = codeOf(err)
			return resp
		}
		d := kmsg.NewDescribeLogDirsResponseDir()
		d.Dir = absolute(s.config.DataDir)
		d.UsableBytes, d.TotalBytes = s.coordinator.Volume()
		for i := range req.Topics {
			if t, ok := snapshot.Topic(req.Topics[i].Topic); ok {
				d.Topics = append(d.Topics, s.sizes(t, req.Topics[i].Partitions))
			}
		}
		if req.Topics == nil {
			for _, t := range snapshot.Topics() {
				if s.coordinator.Listed(t) {
					d.Topics = append(d.Topics, s.sizes(t, all(t)))
				}
			}
		}
		resp.Dirs = append(resp.Dirs, d)
		return resp
	}
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

func all(t *catalog.Topic) []int32 {
	partitions := make([]int32, t.Partitions)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	return partitions
}

// sizes tells how large partitions are; those that do not exist are left out.
func (s *session) sizes(t *catalog.Topic, partitions []int32) kmsg.DescribeLogDirsResponseDirTopic {
	d := kmsg.NewDescribeLogDirsResponseDirTopic()
	d.Topic = t.Name
	for _, partition := range partitions {
		if !t.Has(partition) {
			continue
		}
		if p, err := s.coordinator.Partition(t, partition); err == nil {
			size := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			size.Partition, size.Size = partition, p.Stats().Bytes
			d.Partitions = append(d.Partitions, size)
		}
	}
	return d
}
