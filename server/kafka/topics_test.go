package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTopic is a topic for CreateTopics; settings are key, value, …
func askTopic(name string, partitions int32, settings ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = settings[i], &settings[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func (c *wireClient) createTopics(version int16, topics ...kmsg.CreateTopicsRequestTopic) []kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = topics
	return ask[*kmsg.CreateTopicsResponse](c, version, req).Topics
}

// topicNames asks for all topics.
func (c *wireClient) topicNames() (names []string) {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range ask[*kmsg.MetadataResponse](c, 12, req).Topics {
		if !t.IsInternal {
			names = append(names, *t.Topic)
		}
	}
	return names
}

func refusal(code int16, text *string) string {
	if code == 0 {
		return ""
	}
	name := kerr.TypedErrorForCode(code).Message
	if text == nil {
		return name
	}
	return name + ": " + *text
}

// Every version of CreateTopics makes a topic, which the next request on any
// connection sees (pitfall "created topics, added partitions").
func TestCreateTopicsEveryVersion(t *testing.T) {
	b := startBroker(t)
	c, other := b.dial(), b.dial()
	for version := range int16(8) {
		name := fmt.Sprintf("v%d", version)
		got := c.createTopics(version, askTopic(name, 2, "retention.ms", "5"))[0]
		if got.ErrorCode != 0 {
			t.Fatalf("version %d: %s", version, refusal(got.ErrorCode, got.ErrorMessage))
		}
		if names := other.topicNames(); !slices.Contains(names, name) {
			t.Errorf("version %d: topics are %v", version, names)
		}
		if version < 5 {
			continue
		}
		values := map[string]string{}
		for _, s := range got.Configs {
			values[s.Name] = fmt.Sprintf("%s from %d", *s.Value, s.Source)
		}
		if got.NumPartitions != 2 || got.ReplicationFactor != 1 || values["retention.ms"] != "5 from 1" || values["segment.ms"] != "604800000 from 5" || len(values) != 37 {
			t.Errorf("version %d: %d partitions, %d copies, %d settings %v", version, got.NumPartitions, got.ReplicationFactor, len(values), values)
		}
		if hasID := got.TopicID != [16]byte{}; hasID != (version >= 7) {
			t.Errorf("version %d: id %v", version, got.TopicID)
		}
	}
}

// Pitfall: one topic with a bad value gets its own error, the others exist.
func TestCreateTopicsAnswersEachTopic(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	null := askTopic("null", 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	three := askTopic("three", 1)
	three.ReplicationFactor = 3
	assigned := askTopic("assigned", -1)
	assigned.ReplicationFactor = -1
	assigned.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}, {Partition: 1, Replicas: []int32{1}}}
	doubled := askTopic("doubled", -1)
	doubled.ReplicationFactor = -1
	doubled.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}, {Partition: 0, Replicas: []int32{1}}}
	var got []string
	for _, r := range c.createTopics(7, askTopic("bad", 1, "retention.ms", "x"), askTopic("good", 1), null, askTopic("twice", 1), askTopic("twice", 1), three, assigned, doubled, askTopic("a/b", 1)) {
		got = append(got, fmt.Sprintf("%s %d %s", r.Topic, r.NumPartitions, refusal(r.ErrorCode, r.ErrorMessage)))
	}
	want := []string{
		"bad -1 INVALID_CONFIG: Invalid value x for configuration retention.ms: Not a number of type LONG",
		"good 1 ",
		"null -1 INVALID_CONFIG: Null value not supported for topic configs: retention.ms",
		"twice -1 INVALID_REQUEST: Duplicate topic name.",
		"three 1 ",
		"assigned 2 ",
		"doubled -1 INVALID_REPLICA_ASSIGNMENT: Found multiple manual partition assignments for partition 0",
		"a/b -1 INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"assigned", "good", "three"}, c.topicNames()); diff != "" {
		t.Error(diff)
	}
}

func TestCreateTopicsValidateOnly(t *testing.T) {
	c := startBroker(t).dial()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.ValidateOnly = []kmsg.CreateTopicsRequestTopic{askTopic("t", 1)}, true
	if got := ask[*kmsg.CreateTopicsResponse](c, 7, req).Topics[0]; got.ErrorCode != 0 {
		t.Error(refusal(got.ErrorCode, got.ErrorMessage))
	}
	if names := c.topicNames(); len(names) > 0 {
		t.Errorf("topics are %v", names)
	}
}

func TestDeleteTopicsEveryVersion(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	for version := range int16(7) {
		b.create("t", 1)
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{"t", "nobody"}
		for i := range req.TopicNames {
			req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
		}
		got := ask[*kmsg.DeleteTopicsResponse](c, version, req).Topics
		if got[0].ErrorCode != 0 || got[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("version %d: %+v", version, got)
		}
		if names := c.topicNames(); len(names) > 0 {
			t.Errorf("version %d: topics are %v", version, names)
		}
	}
}

func TestDeleteTopicsByID(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	created := b.create("t", 1)
	name, empty := "u", ""
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: created.ID}, {TopicID: [16]byte{9}}, {Topic: &name, TopicID: [16]byte{8}}, {},
		{TopicID: [16]byte{7}}, {TopicID: [16]byte{7}}, {Topic: &empty}}
	var got []string
	for _, r := range ask[*kmsg.DeleteTopicsResponse](c, 6, req).Topics {
		name := "-"
		if r.Topic != nil {
			name = *r.Topic
		}
		got = append(got, name+" "+refusal(r.ErrorCode, r.ErrorMessage))
	}
	want := []string{"t ", "- UNKNOWN_TOPIC_ID: This server does not host this topic ID.",
		"u INVALID_REQUEST: You may not specify both topic name and topic id.", "- INVALID_REQUEST: Neither topic name nor id were specified.",
		"- INVALID_REQUEST: Duplicate topic id.", " UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDeletionDisabled(t *testing.T) {
	b := startBroker(t, "delete.topic.enable=false")
	b.create("t", 1)
	c := b.dial()
	for version, want := range map[int16]int16{2: kerr.InvalidRequest.Code, 3: kerr.TopicDeletionDisabled.Code} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{"t"}
		if got := ask[*kmsg.DeleteTopicsResponse](c, version, req).Topics[0].ErrorCode; got != want {
			t.Errorf("version %d: code %d, want %d", version, got, want)
		}
	}
}

// Pitfall: a topic that is deleted and created again is another one, with none
// of the old one's data, and its id does not come back after a restart either.
func TestTopicCreatedAgainIsNew(t *testing.T) {
	b := startBroker(t)
	old := b.create("t", 1)
	c := b.dial()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{"t"}
	ask[*kmsg.DeleteTopicsResponse](c, 3, req)
	fresh := b.create("t", 1)
	if fresh.ID == old.ID {
		t.Error("the new topic has the old one's id")
	}
	b.restart()
	if _, ok := b.coordinator.Catalog().TopicByID(old.ID); ok {
		t.Error("the old topic is back after a restart")
	}
	if again, ok := b.coordinator.Catalog().Topic("t"); !ok || again.ID != fresh.ID {
		t.Error("the new topic is gone after a restart")
	}
}

func TestCreatePartitionsEveryVersion(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	c := b.dial()
	for version := range int16(4) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		count := int32(version) + 2
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: count}, {Topic: "nobody", Count: 2}}
		got := ask[*kmsg.CreatePartitionsResponse](c, version, req).Topics
		if got[0].ErrorCode != 0 || refusal(got[1].ErrorCode, got[1].ErrorMessage) != "UNKNOWN_TOPIC_OR_PARTITION" {
			t.Errorf("version %d: %+v", version, got)
		}
		m := kmsg.NewPtrMetadataRequest()
		name := "t"
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		if n := len(ask[*kmsg.MetadataResponse](b.dial(), 12, m).Topics[0].Partitions); n != int(count) {
			t.Errorf("version %d: metadata shows %d partitions, want %d", version, n, count)
		}
	}
}

// ---- metadata

func metadataOf(c *wireClient, version int16, names ...string) *kmsg.MetadataResponse {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
	for i := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
	}
	return ask[*kmsg.MetadataResponse](c, version, req)
}

// Pitfalls: an advertised address the client can reach, ids and epochs, sets of
// operations exactly as Kafka's, in every version that has them.
func TestMetadataEveryVersion(t *testing.T) {
	b := startBroker(t)
	created := b.create("t", 2)
	c := b.dial()
	for version := range int16(14) {
		m := metadataOf(c, version, "t")
		topic := m.Topics[0]
		if len(m.Brokers) != 1 || m.Brokers[0].NodeID != 1 || m.Brokers[0].Host != "memory" || m.Brokers[0].Port != 9092 {
			t.Errorf("version %d: brokers are %+v", version, m.Brokers)
		}
		if version >= 1 && m.ControllerID != 1 || version >= 2 && *m.ClusterID != b.coordinator.ClusterID() {
			t.Errorf("version %d: controller %d, cluster %v", version, m.ControllerID, m.ClusterID)
		}
		if topic.ErrorCode != 0 || len(topic.Partitions) != 2 || topic.Partitions[1].Leader != 1 || topic.Partitions[1].Partition != 1 {
			t.Errorf("version %d: %+v", version, topic)
		}
		if version >= 7 && topic.Partitions[0].LeaderEpoch != 0 || version >= 10 && topic.TopicID != created.ID {
			t.Errorf("version %d: epoch %d, id %v", version, topic.Partitions[0].LeaderEpoch, topic.TopicID)
		}
		if version >= 8 && topic.AuthorizedOperations != 3576 || version >= 8 && version <= 10 && m.AuthorizedOperations != 8096 {
			t.Errorf("version %d: operations %d on the topic, %d on the cluster", version, topic.AuthorizedOperations, m.AuthorizedOperations)
		}
	}
	plain := kmsg.NewPtrMetadataRequest()
	if m := ask[*kmsg.MetadataResponse](c, 8, plain); m.AuthorizedOperations != -2147483648 || m.Topics[0].AuthorizedOperations != -2147483648 {
		t.Error("operations are told although nobody asked")
	}
}

// Pitfall: the empty list is all topics in version 0 and none later, null is all.
func TestMetadataOfAllTopics(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	c := b.dial()
	for _, x := range []struct {
		version int16
		topics  []kmsg.MetadataRequestTopic
		want    bool
	}{{0, nil, true}, {0, []kmsg.MetadataRequestTopic{}, true}, {1, nil, true}, {1, []kmsg.MetadataRequestTopic{}, false}, {13, nil, true}, {13, []kmsg.MetadataRequestTopic{}, false}} {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = x.topics
		got := slices.ContainsFunc(ask[*kmsg.MetadataResponse](c, x.version, req).Topics, func(m kmsg.MetadataResponseTopic) bool { return *m.Topic == "t" })
		if got != x.want {
			t.Errorf("version %d, %v: listed %v, want %v", x.version, x.topics, got, x.want)
		}
	}
}

func TestMetadataCreatesTopics(t *testing.T) {
	for _, x := range []struct {
		set     string
		version int16
		allow   bool
		name    string
		want    int16
	}{
		{"num.partitions=3", 3, false, "t", 0},
		{"num.partitions=3", 4, true, "t", 0},
		{"num.partitions=3", 4, false, "t", kerr.UnknownTopicOrPartition.Code},
		{"auto.create.topics.enable=false", 4, true, "t", kerr.UnknownTopicOrPartition.Code},
		{"num.partitions=3", 4, true, "__t", kerr.UnknownTopicOrPartition.Code},
		{"num.partitions=3", 4, true, "a/b", kerr.InvalidTopicException.Code},
		{"num.partitions=3", 4, false, "a/b", kerr.InvalidTopicException.Code},
		{"num.partitions=3", 12, true, strings.Repeat("x", 250), kerr.InvalidTopicException.Code},
	} {
		b := startBroker(t, x.set)
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = x.allow
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &x.name}, {Topic: &x.name}}
		got := ask[*kmsg.MetadataResponse](b.dial(), x.version, req).Topics
		if len(got) != 1 || got[0].ErrorCode != x.want || x.want == 0 && len(got[0].Partitions) != 3 {
			t.Errorf("%+v: %+v", x, got)
		}
	}
}

func TestMetadataByID(t *testing.T) {
	b := startBroker(t)
	created := b.create("t", 1)
	c := b.dial()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{TopicID: created.ID}, {TopicID: [16]byte{7}}}
	got := ask[*kmsg.MetadataResponse](c, 13, req).Topics
	if *got[0].Topic != "t" || got[1].ErrorCode != kerr.UnknownTopicID.Code || got[1].Topic != nil {
		t.Errorf("%+v", got)
	}
}

// Internal topics are found by name, and listed once they hold something.
func TestInternalTopics(t *testing.T) {
	c := startBroker(t).dial()
	m := metadataOf(c, 12, "__consumer_offsets", "__transaction_state")
	for _, topic := range m.Topics {
		if topic.ErrorCode != 0 || !topic.IsInternal || len(topic.Partitions) != 50 {
			t.Errorf("%s: %s, %d partitions", *topic.Topic, refusal(topic.ErrorCode, nil), len(topic.Partitions))
		}
	}
	var listed []string
	for _, topic := range metadataOf(c, 12).Topics {
		listed = append(listed, *topic.Topic)
	}
	if diff := cmp.Diff([]string{"__perigee_catalog"}, listed); diff != "" {
		t.Error(diff)
	}
	create := c.createTopics(7, askTopic("__consumer_offsets", 1), askTopic("__perigee_other", 1), askTopic("__mine", 1))
	for i, want := range []int16{kerr.TopicAlreadyExists.Code, kerr.InvalidRequest.Code, 0} {
		if create[i].ErrorCode != want {
			t.Errorf("create %s: %s", create[i].Topic, refusal(create[i].ErrorCode, create[i].ErrorMessage))
		}
	}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{"__consumer_offsets"}
	if got := ask[*kmsg.DeleteTopicsResponse](c, 3, remove).Topics[0].ErrorCode; got != kerr.InvalidRequest.Code {
		t.Errorf("delete an internal topic: %s", refusal(got, nil))
	}
}

// Topics and partitions survive a restart; epochs grow with it.
func TestMetadataAfterRestart(t *testing.T) {
	b := startBroker(t)
	created := b.create("t", 3)
	id := b.coordinator.ClusterID()
	b.restart()
	m := metadataOf(b.dial(), 12, "t")
	topic := m.Topics[0]
	if *m.ClusterID != id || topic.TopicID != created.ID || len(topic.Partitions) != 3 || topic.Partitions[0].LeaderEpoch != 1 {
		t.Errorf("%+v", m)
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	b := startBroker(t)
	b.create("a", 3)
	b.create("b", 2)
	c := b.dial()
	var pages []string
	var cursor *kmsg.DescribeTopicPartitionsRequestCursor
	for {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "b"}, {Topic: "a"}, {Topic: "nobody"}}
		req.ResponsePartitionLimit, req.Cursor = 2, cursor
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, 0, req)
		var page []string
		for _, topic := range resp.Topics {
			text := *topic.Topic + refusal(topic.ErrorCode, nil)
			for _, p := range topic.Partitions {
				text += fmt.Sprintf(" %d", p.Partition)
			}
			page = append(page, text)
		}
		pages = append(pages, strings.Join(page, ", "))
		if resp.NextCursor == nil {
			break
		}
		cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	if diff := cmp.Diff([]string{"a 0 1", "a 2, b 0", "b 1, nobodyUNKNOWN_TOPIC_OR_PARTITION"}, pages); diff != "" {
		t.Error(diff)
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "b"}}
	for name, cursor := range map[string]kmsg.DescribeTopicPartitionsRequestCursor{
		"before the first partition":     {Topic: "b", Partition: -1},
		"at a topic nobody asked for":    {Topic: "a"},
		"behind what somebody asked for": {Topic: "c"},
	} {
		req.Cursor = &cursor
		if got := ask[*kmsg.DescribeTopicPartitionsResponse](c, 0, req).Topics[0].ErrorCode; got != kerr.InvalidRequest.Code {
			t.Errorf("a cursor %s: %s", name, refusal(got, nil))
		}
	}
	// No limit is none too small: a page has a partition at least, and no more than that.
	req.Cursor, req.ResponsePartitionLimit = nil, -1
	if got := ask[*kmsg.DescribeTopicPartitionsResponse](c, 0, req); len(got.Topics[0].Partitions) != 1 || got.NextCursor == nil {
		t.Errorf("a limit of -1: %d partitions, cursor %v", len(got.Topics[0].Partitions), got.NextCursor)
	}
	// A full page has no room for an unknown topic either.
	req.Topics, req.ResponsePartitionLimit = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: "nobody"}), 2
	if got := ask[*kmsg.DescribeTopicPartitionsResponse](c, 0, req); len(got.Topics) != 1 || got.NextCursor == nil || got.NextCursor.Topic != "nobody" {
		t.Errorf("a full page: %d topics, cursor %v", len(got.Topics), got.NextCursor)
	}
}

// While the disk is full no topic can be made on the way; the topics there are
// must be answered all the same.
func TestMetadataAnswersWhileTheDiskIsFull(t *testing.T) {
	b := startBroker(t)
	b.create("orders", 1)
	free, total, err := b.disk.Free()
	if err != nil {
		t.Fatal(err)
	}
	b.disk.SetTotal(total - free + 20<<20) // enough to start, less than what is kept free
	b.restart()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = true
	for _, name := range []string{"orders", "missing"} {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	got := ask[*kmsg.MetadataResponse](b.dial(), 12, req).Topics
	if len(got) != 2 || got[0].ErrorCode != 0 || got[1].ErrorCode != kerr.KafkaStorageError.Code {
		t.Errorf("topics %+v", got)
	}
}
