package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// metadata serves Metadata 0 to 13: in 0 an empty list asks for all topics, from
// 1 on a null one does; 1 adds the controller, 2 the cluster id, 4 says whether
// topics may be created on the way, 5 offline replicas, 7 leader epochs, 8 sets
// of operations, 9 is flexible, 10 adds topic ids, 12 asks by them, 13 has an
// error for the whole answer.
func metadata(s *session, r *request) reply {
	req := r.body.(*kmsg.MetadataRequest)
	all := req.Topics == nil || r.version == 0 && len(req.Topics) == 0
	create := s.autoCreate(req)
	durable := s.coordinator.ReadCatalog()
	return func(ctx context.Context) kmsg.Response {
		created, err := create(ctx)
		if err != nil {
			return nil // nothing true can be said; the connection or the process is ending
		}
		snapshot, err := durable.Wait(ctx)
		if err != nil {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.Brokers = []kmsg.MetadataResponseBroker{s.metadataBroker()}
		id := s.coordinator.ClusterID()
		resp.ClusterID, resp.ControllerID = &id, s.coordinator.Here().Node
		if req.IncludeClusterAuthorizedOperations {
			resp.AuthorizedOperations = clusterOperations
		}
		if all {
			for _, t := range snapshot.Topics() {
				if s.coordinator.Listed(t) {
					resp.Topics = append(resp.Topics, s.metadataTopic(t))
				}
			}
		}
		for _, asked := range once(req.Topics) {
			resp.Topics = append(resp.Topics, s.namedTopic(snapshot, created, asked))
		}
		if req.IncludeTopicAuthorizedOperations {
			for i := range resp.Topics {
				resp.Topics[i].AuthorizedOperations = topicOperations
			}
		}
		return resp
	}
}

// autoCreate makes the topics that are named and missing, where the client
// allows it; clients before version 4 always do. The function returned waits
// and says what became of them.
func (s *session) autoCreate(req *kmsg.MetadataRequest) func(context.Context) (map[string]catalog.CreatedTopic, error) {
	var missing []string
	seen := map[string]bool{}
	if req.AllowAutoTopicCreation || req.Version < 4 {
		for i := range req.Topics {
			name := req.Topics[i].Topic
			if name == nil || seen[*name] {
				continue
			}
			seen[*name] = true
			if _, ok := s.coordinator.Catalog().Topic(*name); !ok {
				missing = append(missing, *name)
			}
		}
	}
	if missing == nil {
		return func(context.Context) (map[string]catalog.CreatedTopic, error) { return nil, nil }
	}
	made := s.coordinator.AutoCreate(missing)
	return func(ctx context.Context) (map[string]catalog.CreatedTopic, error) {
		results, err := made(ctx)
		if ctx.Err() != nil {
			return nil, err
		}
		byName := make(map[string]catalog.CreatedTopic, len(missing))
		for i, name := range missing {
			if err != nil { // none could be made: a full disk is no reason to say nothing of the others
				byName[name] = catalog.CreatedTopic{Err: err}
			} else {
				byName[name] = results[i]
			}
		}
		return byName, nil
	}
}

// once returns what was asked for, each topic once, as Kafka answers.
func once(asked []kmsg.MetadataRequestTopic) []*kmsg.MetadataRequestTopic {
	type key struct {
		name  string
		named bool
		id    [16]byte
	}
	seen := make(map[key]bool, len(asked))
	unique := make([]*kmsg.MetadataRequestTopic, 0, len(asked))
	for i := range asked {
		k := key{id: asked[i].TopicID}
		if name := asked[i].Topic; name != nil {
			k = key{name: *name, named: true}
		}
		if !seen[k] {
			seen[k] = true
			unique = append(unique, &asked[i])
		}
	}
	return unique
}

// namedTopic answers about one topic that was asked for, by id or by name.
func (s *session) namedTopic(snapshot *catalog.Snapshot, created map[string]catalog.CreatedTopic, asked *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	if asked.Topic == nil {
		if t, ok := snapshot.TopicByID(asked.TopicID); ok {
			return s.metadataTopic(t)
		}
		m := kmsg.NewMetadataResponseTopic()
		m.TopicID, m.ErrorCode = asked.TopicID, kerr.UnknownTopicID.Code
		return m
	}
	if t, ok := snapshot.Topic(*asked.Topic); ok {
		return s.metadataTopic(t)
	}
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.IsInternal, m.ErrorCode = asked.Topic, catalog.IsInternal(*asked.Topic), kerr.UnknownTopicOrPartition.Code
	if err := catalog.CheckTopicName(*asked.Topic); err != nil {
		m.ErrorCode = codeOf(err)
	} else if c := created[*asked.Topic]; c.Err != nil {
		m.ErrorCode = codeOf(c.Err)
	}
	return m
}

func (s *session) metadataBroker() kmsg.MetadataResponseBroker {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Rack = s.coordinator.Here().Node, s.rack()
	b.Host, b.Port = s.advertised()
	return b
}

func (s *session) rack() *string {
	if s.config.Rack == "" {
		return nil
	}
	return &s.config.Rack
}

func (s *session) metadataTopic(t *catalog.Topic) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID, m.IsInternal = &t.Name, t.ID, t.Internal
	m.Partitions = make([]kmsg.MetadataResponseTopicPartition, t.Partitions)
	for i := range t.Partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		l := s.leadership(t, i)
		p.Partition, p.ErrorCode, p.Leader, p.LeaderEpoch = i, l.code, l.node, int32(l.epoch)
		p.Replicas, p.ISR, p.OfflineReplicas = l.replicas, l.inSync, l.offline
		m.Partitions[i] = p
	}
	return m
}

// leadership is who serves a partition, and who has copies of it.
type leadership struct {
	code                      int16
	node                      int32
	epoch                     model.LeaderEpoch
	replicas, inSync, offline []int32
}

func (s *session) leadership(t *catalog.Topic, partition int32) leadership {
	leader := s.coordinator.Leader(t.Partition(partition))
	l := leadership{node: leader.Node, epoch: leader.Epoch, replicas: []int32{leader.Node}, inSync: []int32{leader.Node}}
	p, err := s.coordinator.Partition(t, partition)
	if err == nil && errors.Is(p.Err(), storage.ErrPartitionOffline) {
		l.code, l.node, l.inSync, l.offline = kerr.LeaderNotAvailable.Code, -1, nil, l.replicas
	}
	return l
}

// describeTopicPartitions serves DescribeTopicPartitions 0: topics by name, at
// most so many partitions at once, and a cursor for the rest.
func describeTopicPartitions(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeTopicPartitionsRequest)
	durable := s.coordinator.ReadCatalog()
	return func(ctx context.Context) kmsg.Response {
		snapshot, err := durable.Wait(ctx)
		if err != nil {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
		names := s.pageNames(snapshot, req)
		if !cursorPoints(req, names) {
			return refuseCursor(req, resp)
		}
		page := topicPage{session: s, resp: resp, left: min(s.config.Network.DescribePartitions, max(1, int(req.ResponsePartitionLimit)))}
		for _, name := range names {
			first := int32(0)
			if req.Cursor != nil && req.Cursor.Topic == name {
				first = req.Cursor.Partition
			}
			if !page.add(snapshot, name, first) {
				break
			}
		}
		return resp
	}
}

// pageNames are the topics to describe, sorted, from the cursor on.
func (s *session) pageNames(snapshot *catalog.Snapshot, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range snapshot.Topics() {
			if s.coordinator.Listed(t) {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		at, _ := slices.BinarySearch(names, req.Cursor.Topic)
		names = names[at:]
	}
	return names
}

// cursorPoints reports whether the cursor, if there is one, stands at a partition
// of one of the topics that are asked for. Where all are, its topic may be gone.
func cursorPoints(req *kmsg.DescribeTopicPartitionsRequest, names []string) bool {
	c := req.Cursor
	return c == nil || c.Partition >= 0 && (len(req.Topics) == 0 || len(names) > 0 && names[0] == c.Topic)
}

// refuseCursor answers a cursor that points nowhere.
func refuseCursor(req *kmsg.DescribeTopicPartitionsRequest, resp *kmsg.DescribeTopicPartitionsResponse) kmsg.Response {
	for i := range req.Topics {
		t := kmsg.NewDescribeTopicPartitionsResponseTopic()
		t.Topic, t.ErrorCode = &req.Topics[i].Topic, kerr.InvalidRequest.Code
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// topicPage is one answer being filled.
type topicPage struct {
	*session
	resp *kmsg.DescribeTopicPartitionsResponse
	left int // partitions that still fit
}

// add describes a topic from partition first on, and reports whether more fits.
func (p *topicPage) add(snapshot *catalog.Snapshot, name string, first int32) bool {
	if p.left == 0 {
		p.resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
		return false
	}
	d := kmsg.NewDescribeTopicPartitionsResponseTopic()
	d.Topic, d.AuthorizedOperations = &name, topicOperations
	t, ok := snapshot.Topic(name)
	if !ok {
		d.ErrorCode = cmp.Or(codeOf(catalog.CheckTopicName(name)), kerr.UnknownTopicOrPartition.Code)
		p.resp.Topics = append(p.resp.Topics, d)
		return true
	}
	d.TopicID, d.IsInternal = t.ID, t.Internal
	for i := first; i < t.Partitions && p.left > 0; i++ {
		l := p.leadership(t, i)
		described := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		described.Partition, described.ErrorCode, described.LeaderID, described.LeaderEpoch = i, l.code, l.node, int32(l.epoch)
		described.Replicas, described.ISR, described.OfflineReplicas = l.replicas, l.inSync, l.offline
		described.EligibleLeaderReplicas, described.LastKnownELR = []int32{}, []int32{}
		d.Partitions = append(d.Partitions, described)
		p.left--
		first = i + 1
	}
	p.resp.Topics = append(p.resp.Topics, d)
	if first < t.Partitions {
		p.resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
		return false
	}
	return true
}
