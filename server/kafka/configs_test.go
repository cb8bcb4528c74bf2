package kafka

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	aTopic         = kmsg.ConfigResourceTypeTopic
	aBroker        = kmsg.ConfigResourceTypeBroker
	aLogger        = kmsg.ConfigResourceTypeBrokerLogger
	aGroup         = kmsg.ConfigResourceTypeGroupConfig
	aClientMetrics = kmsg.ConfigResourceTypeClientMetrics
)

// described asks for settings and prints each as Kafka's tools do.
func (c *wireClient) described(version int16, kind kmsg.ConfigResourceType, name string, keys ...string) []string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	r := ask[*kmsg.DescribeConfigsResponse](c, version, req).Resources[0]
	if r.ErrorCode != 0 {
		return []string{refusal(r.ErrorCode, r.ErrorMessage)}
	}
	lines := []string{}
	for _, s := range r.Configs {
		value := "null"
		if s.Value != nil {
			value = *s.Value
		}
		line := fmt.Sprintf("%s=%s ro=%v source=%d type=%d", s.Name, value, s.ReadOnly, s.Source, s.ConfigType)
		for _, y := range s.ConfigSynonyms {
			line += fmt.Sprintf(" %d:%s=%s", y.Source, y.Name, *y.Value)
		}
		lines = append(lines, line)
	}
	return lines
}

func (c *wireClient) alter(kind kmsg.ConfigResourceType, name string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) string {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: ops}}
	r := ask[*kmsg.IncrementalAlterConfigsResponse](c, 1, req).Resources[0]
	return refusal(r.ErrorCode, r.ErrorMessage)
}

func op(o kmsg.IncrementalAlterConfigOp, name, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Op: o, Value: &value}
}

// Pitfall: defaults are typed, come from DEFAULT_CONFIG, and have their synonyms
// in order; what is set comes from where it was set.
func TestDescribeTopicConfigs(t *testing.T) {
	b := startBroker(t, "log.segment.bytes=2MiB")
	b.create("t", 1, "cleanup.policy", "compact")
	c := b.dial()
	all := c.described(4, aTopic, "t")
	if len(all) != 37 {
		t.Errorf("%d settings, want 37", len(all))
	}
	want := []string{
		"cleanup.policy=compact ro=false source=1 type=7 1:cleanup.policy=compact 5:log.cleanup.policy=delete",
		"min.cleanable.dirty.ratio=0.5 ro=false source=5 type=6 5:log.cleaner.min.cleanable.ratio=0.5",
		"preallocate=false ro=false source=5 type=1 5:log.preallocate=false",
		"retention.ms=604800000 ro=false source=5 type=5",
		"segment.bytes=2097152 ro=false source=4 type=3 4:log.segment.bytes=2097152 5:log.segment.bytes=1073741824",
	}
	if diff := cmp.Diff(want, c.described(4, aTopic, "t", "cleanup.policy", "min.cleanable.dirty.ratio", "preallocate", "retention.ms", "segment.bytes")); diff != "" {
		t.Error(diff)
	}
	for _, x := range []struct {
		kind       kmsg.ConfigResourceType
		name, want string
	}{
		{aTopic, "nobody", "UNKNOWN_TOPIC_OR_PARTITION: "},
		{aTopic, "", "INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string is not allowed"},
		{aBroker, "2", "INVALID_REQUEST: Unexpected broker id, expected 1 or empty string, but received 2"},
		{aBroker, "x", "INVALID_REQUEST: Broker id must be an integer, but it is: x"},
		{aGroup, "", "INVALID_REQUEST: Group name must not be empty"},
		{aClientMetrics, "", "INVALID_REQUEST: Client metrics subscription name must not be empty"},
		{99, "x", "INVALID_REQUEST: Unsupported resource type 99"},
	} {
		if got := strings.Join(c.described(4, x.kind, x.name), ","); got != x.want {
			t.Errorf("%d %q: %q, want %q", x.kind, x.name, got, x.want)
		}
	}
}

// Version 0 only tells defaults from others; documentation comes when asked for.
func TestDescribeConfigsEveryVersion(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1, "retention.ms", "5")
	c := b.dial()
	for version := range int16(5) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeDocumentation = true
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: aTopic, ResourceName: "t", ConfigNames: []string{"retention.ms", "segment.ms"}}}
		got := ask[*kmsg.DescribeConfigsResponse](c, version, req).Resources[0].Configs
		if *got[0].Value != "5" || *got[1].Value != "604800000" {
			t.Errorf("version %d: %+v", version, got)
		}
		if version == 0 && (got[0].IsDefault || !got[1].IsDefault) {
			t.Errorf("version 0: defaults are %v and %v", got[0].IsDefault, got[1].IsDefault)
		}
		if hasDoc := got[0].Documentation != nil; hasDoc != (version >= 3) || len(got[0].ConfigSynonyms) > 0 {
			t.Errorf("version %d: documentation %v, synonyms %v", version, hasDoc, got[0].ConfigSynonyms)
		}
	}
}

func TestDescribeBrokerConfigs(t *testing.T) {
	b := startBroker(t, "log.retention.hours=2")
	c := b.dial()
	for _, err := range []string{
		c.alter(aBroker, "", op(0, "num.partitions", "4")),
		c.alter(aBroker, "1", op(0, "log.segment.bytes", "3000000")),
	} {
		if err != "" {
			t.Fatal(err)
		}
	}
	want := []string{
		"delete.topic.enable=true ro=true source=5 type=1 5:delete.topic.enable=true",
		"inter.broker.protocol.version=4.0 ro=true source=5 type=2 5:inter.broker.protocol.version=4.0",
		"log.retention.hours=2 ro=true source=4 type=3 4:log.retention.hours=2 5:log.retention.hours=168",
		"log.retention.ms=null ro=false source=5 type=5 4:log.retention.hours=2 5:log.retention.hours=168",
		"log.segment.bytes=3000000 ro=false source=2 type=3 2:log.segment.bytes=3000000 5:log.segment.bytes=1073741824",
		"num.partitions=4 ro=false source=3 type=3 3:num.partitions=4 5:num.partitions=1",
	}
	keys := []string{"delete.topic.enable", "inter.broker.protocol.version", "log.retention.hours", "log.retention.ms", "log.segment.bytes", "num.partitions"}
	if diff := cmp.Diff(want, c.described(4, aBroker, "1", keys...)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"num.partitions=4 ro=false source=3 type=3 3:num.partitions=4"}, c.described(4, aBroker, "")); diff != "" {
		t.Error(diff)
	}
	if got := c.createTopics(7, askTopic("t", -1))[0]; got.NumPartitions != 4 {
		t.Errorf("a new topic has %d partitions, want 4", got.NumPartitions)
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	b := startBroker(t)
	created := b.create("t", 1)
	c := b.dial()
	for _, x := range []struct {
		op       kmsg.IncrementalAlterConfigsRequestResourceConfig
		err      string
		policies string // of the topic afterwards
	}{
		{op(2, "cleanup.policy", "compact"), "", "delete,compact"},
		{op(3, "cleanup.policy", "delete"), "", "compact"},
		{op(0, "cleanup.policy", "x"), "INVALID_CONFIG: Invalid value x for configuration cleanup.policy: String must be one of: compact, delete", "compact"},
		{op(0, "nope", "x"), "INVALID_CONFIG: Unknown topic config name: nope", "compact"},
		{op(2, "retention.ms", "1"), "INVALID_CONFIG: Can't APPEND to key retention.ms because its type is not LIST.", "compact"},
		{op(1, "cleanup.policy", ""), "", "delete"},
	} {
		if err := c.alter(aTopic, "t", x.op); err != x.err {
			t.Errorf("%+v: %q, want %q", x.op, err, x.err)
		}
		if got := c.described(4, aTopic, "t", "cleanup.policy")[0]; !strings.HasPrefix(got, "cleanup.policy="+x.policies+" ") {
			t.Errorf("%+v: then %s", x.op, got)
		}
	}
	// The engine follows at once.
	if err := c.alter(aTopic, "t", op(0, "segment.bytes", "2000000")); err != "" {
		t.Fatal(err)
	}
	log, err := b.coordinator.Partition(created, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := log.Config().SegmentBytes; got != 2000000 {
		t.Errorf("the log's segments have %d bytes", got)
	}
	// And so it stays.
	b.restart()
	if got := b.dial().described(4, aTopic, "t", "segment.bytes"); !strings.HasPrefix(got[0], "segment.bytes=2000000 ") {
		t.Errorf("after a restart: %v", got)
	}
}

// AlterConfigs forgets what it does not name.
func TestAlterConfigsEveryVersion(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	for version := range int16(3) {
		name := fmt.Sprintf("t%d", version)
		b.create(name, 1, "retention.ms", "5")
		value := "2000000"
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: aTopic, ResourceName: name, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "segment.bytes", Value: &value}}}}
		req.ValidateOnly = true
		ask[*kmsg.AlterConfigsResponse](c, version, req)
		req.ValidateOnly = false
		if r := ask[*kmsg.AlterConfigsResponse](c, version, req).Resources[0]; r.ErrorCode != 0 {
			t.Errorf("version %d: %s", version, refusal(r.ErrorCode, r.ErrorMessage))
		}
		got := strings.Join(c.described(1, aTopic, name, "retention.ms", "segment.bytes"), "\n")
		if !strings.Contains(got, "retention.ms=604800000 ") || !strings.Contains(got, "segment.bytes=2000000 ") {
			t.Errorf("version %d: %s", version, got)
		}
	}
}

func TestListConfigResources(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	c := b.dial()
	for _, err := range []string{
		c.alter(aGroup, "g", op(0, "consumer.session.timeout.ms", "46000")),
		c.alter(aClientMetrics, "m", op(0, "interval.ms", "1000")),
	} {
		if err != "" {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		version int16
		kinds   []int8
		want    string
	}{
		{0, nil, "0/m"},
		{1, []int8{16}, "16/m"},
		{1, []int8{2, 4, 32}, "2/__perigee_catalog 2/t 4/1 32/g"},
		{1, nil, "4/1 2/__perigee_catalog 2/t 16/m 32/g"},
		{1, []int8{4, 32, 4, 32}, "4/1 32/g"},
		{1, []int8{77}, "UNSUPPORTED_VERSION"},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = x.kinds
		resp := ask[*kmsg.ListConfigResourcesResponse](c, x.version, req)
		got := refusal(resp.ErrorCode, nil)
		var names []string
		for _, r := range resp.ConfigResources {
			names = append(names, fmt.Sprintf("%d/%s", r.Type, r.Name))
		}
		if got += strings.Join(names, " "); x.version == 0 {
			got = strings.ReplaceAll(got, "16/", "0/")
		}
		if got != x.want {
			t.Errorf("version %d, %v: %q, want %q", x.version, x.kinds, got, x.want)
		}
	}
}

// A resource that is named often is described once, with all that was asked of it.
func TestDescribeConfigsOfOneResource(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	c := b.dial()
	of := func(name string, keys ...string) kmsg.DescribeConfigsRequestResource {
		return kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, ConfigNames: keys}
	}
	for name, x := range map[string]struct {
		asked []kmsg.DescribeConfigsRequestResource
		want  string
	}{
		"other keys":         {[]kmsg.DescribeConfigsRequestResource{of("t", "segment.ms"), of("u"), of("t", "retention.ms")}, "t 2, u 0"},
		"all of them":        {[]kmsg.DescribeConfigsRequestResource{of("t"), of("t", "retention.ms")}, "t 37"},
		"all of them, later": {[]kmsg.DescribeConfigsRequestResource{of("t", "retention.ms"), of("t")}, "t 37"},
	} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = x.asked
		var got []string
		for _, r := range ask[*kmsg.DescribeConfigsResponse](c, 4, req).Resources {
			got = append(got, fmt.Sprintf("%s %d", r.ResourceName, len(r.Configs)))
		}
		if text := strings.Join(got, ", "); text != x.want {
			t.Errorf("%s: %q, want %q", name, text, x.want)
		}
	}
}

// Groups need not exist to have settings: how many one request describes is limited.
func TestDescribeConfigsOfManyGroups(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	req := kmsg.NewPtrDescribeConfigsRequest()
	for i := range maxUnbound + 2 {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: fmt.Sprint("g", i)})
	}
	req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"})
	got := ask[*kmsg.DescribeConfigsResponse](b.dial(), 4, req).Resources
	for i, r := range got {
		want := int16(0)
		if i == maxUnbound || i == maxUnbound+1 {
			want = kerr.InvalidRequest.Code
		}
		if r.ErrorCode != want || len(r.Configs) > 0 != (want == 0) {
			t.Fatalf("%s, number %d: error %d with %d settings", r.ResourceName, i, r.ErrorCode, len(r.Configs))
		}
	}
	if len(got) != maxUnbound+3 {
		t.Errorf("%d answers", len(got))
	}
}

// ---- cluster

func TestDescribeClusterEveryVersion(t *testing.T) {
	b := startBroker(t, "broker.rack=r1")
	c := b.dial()
	for version := range int16(3) {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations = true
		got := ask[*kmsg.DescribeClusterResponse](c, version, req)
		if got.ClusterID != b.coordinator.ClusterID() || got.ControllerID != 1 || len(got.Brokers) != 1 || *got.Brokers[0].Rack != "r1" || got.ClusterAuthorizedOperations != 8096 {
			t.Errorf("version %d: %+v", version, got)
		}
	}
	for kind, want := range map[int8]int16{2: kerr.MismatchedEndpointType.Code, 3: kerr.UnsupportedEndpointType.Code} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = kind
		if got := ask[*kmsg.DescribeClusterResponse](c, 2, req).ErrorCode; got != want {
			t.Errorf("endpoint type %d: code %d, want %d", kind, got, want)
		}
	}
}

func TestElectLeadersEveryVersion(t *testing.T) {
	b := startBroker(t)
	b.create("t", 1)
	c := b.dial()
	for version := range int16(3) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0, 9}}, {Topic: "nobody", Partitions: []int32{0}}}
		var got []string
		for _, topic := range ask[*kmsg.ElectLeadersResponse](c, version, req).Topics {
			for _, p := range topic.Partitions {
				got = append(got, refusal(p.ErrorCode, p.ErrorMessage))
			}
		}
		want := []string{"ELECTION_NOT_NEEDED: Leader election not needed for topic partition.", "UNKNOWN_TOPIC_OR_PARTITION: No such partition as t-9", "UNKNOWN_TOPIC_OR_PARTITION: No such topic as nobody"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %d: %s", version, diff)
		}
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = 7
	if got := ask[*kmsg.ElectLeadersResponse](c, 2, req).ErrorCode; got != kerr.InvalidRequest.Code {
		t.Errorf("unknown kind: %s", refusal(got, nil))
	}
	if got := ask[*kmsg.ListPartitionReassignmentsResponse](c, 0, kmsg.NewPtrListPartitionReassignmentsRequest()); got.ErrorCode != 0 || len(got.Topics) > 0 {
		t.Errorf("reassignments: %+v", got)
	}
}

// The finalized level of transaction.version can be lowered and raised again,
// the epoch only grows, also over a restart.
func TestUpdateFeatures(t *testing.T) {
	b := startBroker(t)
	features := func() string {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
		resp := ask[*kmsg.ApiVersionsResponse](b.dial(), 3, req)
		level := int16(0)
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				level = f.MaxVersionLevel
			}
		}
		return fmt.Sprintf("level %d, epoch %d", level, resp.FinalizedFeaturesEpoch)
	}
	update := func(version int16, level int16, kind int8, allow bool) string {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "transaction.version", MaxVersionLevel: level, UpgradeType: kind, AllowDowngrade: allow}}
		resp := ask[*kmsg.UpdateFeaturesResponse](b.dial(), version, req)
		return refusal(resp.ErrorCode, resp.ErrorMessage)
	}
	const refused = "INVALID_UPDATE_VERSION: The update failed for all features since the following feature had an error: Invalid update version 1 for feature transaction.version. "
	for i, x := range []struct {
		got, want, features string
	}{
		{update(1, 1, 1, false), refused + "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.", "level 2, epoch 1"},
		{update(0, 1, 0, true), refused + "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.", "level 2, epoch 1"},
		{update(2, 1, 0, false), refused + "The controller does not support the given upgrade type.", "level 2, epoch 1"},
	} {
		if x.got != x.want || features() != x.features {
			t.Errorf("%d: %q, %s; want %q, %s", i, x.got, features(), x.want, x.features)
		}
	}
	if err := update(1, 1, 3, false); err != "" || features() != "level 1, epoch 2" {
		t.Errorf("lowered: %q, %s", err, features())
	}
	for kind := int8(2); kind <= 3; kind++ {
		const raised = "INVALID_UPDATE_VERSION: The update failed for all features since the following feature had an error: Invalid update version 2 for feature transaction.version. Can't downgrade to a newer version."
		if err := update(2, 2, kind, false); err != raised || features() != "level 1, epoch 2" {
			t.Errorf("raised by a downgrade of kind %d: %q, %s", kind, err, features())
		}
	}
	if err := update(0, 2, 0, true); err != "" || features() != "level 2, epoch 3" {
		t.Errorf("raised: %q, %s", err, features())
	}
	b.restart()
	if got := features(); got != "level 2, epoch 3" {
		t.Errorf("after a restart: %s", got)
	}
}

func TestDescribeLogDirsEveryVersion(t *testing.T) {
	b := startBroker(t)
	b.create("t", 2)
	c := b.dial()
	dir, err := filepath.Abs("perigee-data")
	if err != nil {
		t.Fatal(err)
	}
	for version := range int16(6) {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		resp := ask[*kmsg.DescribeLogDirsResponse](c, version, req)
		at := slices.IndexFunc(resp.Dirs[0].Topics, func(d kmsg.DescribeLogDirsResponseDirTopic) bool { return d.Topic == "t" })
		if len(resp.Dirs) != 1 || resp.Dirs[0].Dir != dir || at < 0 || len(resp.Dirs[0].Topics[at].Partitions) != 2 {
			t.Errorf("version %d: %+v", version, resp)
		}
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 7}}, {Topic: "nobody", Partitions: []int32{0}}}
		some := ask[*kmsg.DescribeLogDirsResponse](c, version, req).Dirs[0].Topics
		if len(some) != 1 || len(some[0].Partitions) != 1 || some[0].Partitions[0].Partition != 1 {
			t.Errorf("version %d: %+v", version, some)
		}
	}
}
