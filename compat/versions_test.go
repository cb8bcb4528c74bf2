package compat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/kafka"
)

// scene makes what a request needs to be valid: topics, members, producers. All
// of it by the newest version of each API.
type scene struct {
	t *testing.T
	*wire
	made int
}

func (s *scene) name(kind string) string {
	s.made++
	return fmt.Sprintf("%s-%d", kind, s.made)
}

// topic is a new topic of one partition with three records.
func (s *scene) topic() topic {
	s.t.Helper()
	name := s.name("topic")
	made := ask[*kmsg.CreateTopicsResponse](s.t, s.wire, 7, createTopic(name, 1))
	of := topic{name, made.Topics[0].TopicID}
	ask[*kmsg.ProduceResponse](s.t, s.wire, 13, produce(of, 0, -1, records(s.t, nil, false, "a", "b", "c")))
	return of
}

// member is a member of a stable group of its own.
func (s *scene) member() (string, member) {
	s.t.Helper()
	group := s.name("group")
	m := s.joining(group)
	m.generation = ask[*kmsg.JoinGroupResponse](s.t, s.wire, 9, join(group, m)).Generation
	ask[*kmsg.SyncGroupResponse](s.t, s.wire, 5, sync(group, m))
	return group, m
}

// joining is a member that has been given its id and must join with it.
func (s *scene) joining(group string) member {
	s.t.Helper()
	return member{id: ask[*kmsg.JoinGroupResponse](s.t, s.wire, 9, join(group, nobody)).MemberID}
}

// joined is joining, joined: it must sync.
func (s *scene) joined() (string, member) {
	group := s.name("group")
	m := s.joining(group)
	m.generation = ask[*kmsg.JoinGroupResponse](s.t, s.wire, 9, join(group, m)).Generation
	return group, m
}

// group is a group with one committed offset and no members.
func (s *scene) group() (string, topic) {
	s.t.Helper()
	group, of := s.name("group"), s.topic()
	ask[*kmsg.OffsetCommitResponse](s.t, s.wire, 10, commit(group, nobody, of, 0, 1))
	return group, of
}

func (s *scene) producer() producer {
	s.t.Helper()
	p := newcomer(s.name("tx"))
	resp := ask[*kmsg.InitProducerIDResponse](s.t, s.wire, 5, initProducer(p))
	return producer{p.txid, resp.ProducerID, resp.ProducerEpoch}
}

// inTxn is a producer with a transaction that wrote to a topic.
func (s *scene) inTxn() (producer, topic) {
	s.t.Helper()
	p, of := s.producer(), s.topic()
	ask[*kmsg.AddPartitionsToTxnResponse](s.t, s.wire, 3, addPartition(p, of.name, 0, false))
	return p, of
}

// valid has, for each API we serve, a request that must succeed.
var valid = map[kmsg.Key]func(s *scene, version int16) kmsg.Request{
	kmsg.Produce: func(s *scene, _ int16) kmsg.Request {
		return produce(s.topic(), 0, -1, records(s.t, nil, false, "x"))
	},
	kmsg.Fetch:       func(s *scene, _ int16) kmsg.Request { return fetch(s.topic(), 0, 0) },
	kmsg.ListOffsets: func(s *scene, _ int16) kmsg.Request { return listOffsets(s.topic().name, 0, -1) },
	kmsg.Metadata:    func(s *scene, _ int16) kmsg.Request { return metadataOf(s.topic().name) },
	kmsg.OffsetCommit: func(s *scene, _ int16) kmsg.Request {
		return commit(s.name("group"), nobody, s.topic(), 0, 2)
	},
	kmsg.OffsetFetch: func(s *scene, _ int16) kmsg.Request {
		group, of := s.group()
		return fetchOffsets(group, of, 0)
	},
	kmsg.FindCoordinator: func(s *scene, version int16) kmsg.Request { return findCoordinator(version, 0, "g") },
	kmsg.JoinGroup: func(s *scene, _ int16) kmsg.Request {
		group := s.name("group")
		return join(group, s.joining(group))
	},
	kmsg.Heartbeat: func(s *scene, _ int16) kmsg.Request { return heartbeat(s.member()) },
	kmsg.LeaveGroup: func(s *scene, _ int16) kmsg.Request {
		return leave(s.member())
	},
	kmsg.SyncGroup: func(s *scene, _ int16) kmsg.Request { return sync(s.joined()) },
	kmsg.DescribeGroups: func(s *scene, _ int16) kmsg.Request {
		group, _ := s.member()
		return describeGroup(group)
	},
	kmsg.ListGroups: func(s *scene, _ int16) kmsg.Request {
		s.group()
		return kmsg.NewPtrListGroupsRequest()
	},
	kmsg.ApiVersions: func(*scene, int16) kmsg.Request {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "compat", "1"
		return req
	},
	kmsg.CreateTopics: func(s *scene, _ int16) kmsg.Request {
		return createTopic(s.name("topic"), 2, "retention.ms", "1000")
	},
	kmsg.DeleteTopics:         func(s *scene, _ int16) kmsg.Request { return deleteTopic(s.topic().name) },
	kmsg.DeleteRecords:        func(s *scene, _ int16) kmsg.Request { return deleteRecords(s.topic().name, 0, 2) },
	kmsg.InitProducerID:       func(s *scene, _ int16) kmsg.Request { return initProducer(newcomer(s.name("tx"))) },
	kmsg.OffsetForLeaderEpoch: func(s *scene, _ int16) kmsg.Request { return epochEnd(s.topic().name, 0, 0) },
	kmsg.AddPartitionsToTxn: func(s *scene, _ int16) kmsg.Request {
		return addPartition(s.producer(), s.topic().name, 0, false)
	},
	kmsg.AddOffsetsToTxn: func(s *scene, _ int16) kmsg.Request { return addOffsets(s.producer(), s.name("group")) },
	kmsg.EndTxn: func(s *scene, _ int16) kmsg.Request {
		p, _ := s.inTxn()
		return endTxn(p, true)
	},
	kmsg.WriteTxnMarkers: func(s *scene, _ int16) kmsg.Request {
		p, of := s.inTxn()
		return writeMarker(p, of.name, 0, false)
	},
	kmsg.TxnOffsetCommit: func(s *scene, _ int16) kmsg.Request {
		p, group := s.producer(), s.name("group")
		ask[*kmsg.AddOffsetsToTxnResponse](s.t, s.wire, 3, addOffsets(p, group))
		return commitInTxn(p, group, nobody, s.topic(), 0, 2)
	},
	kmsg.DescribeACLs: func(s *scene, _ int16) kmsg.Request { return describeACLs(s.name("topic")) },
	kmsg.CreateACLs:   func(s *scene, _ int16) kmsg.Request { return createACL("User:clerk", s.name("topic")) },
	kmsg.DeleteACLs:   func(s *scene, _ int16) kmsg.Request { return deleteACLs(s.name("topic")) },
	kmsg.DescribeUserSCRAMCredentials: func(s *scene, _ int16) kmsg.Request {
		user := s.name("user")
		ask[*kmsg.AlterUserSCRAMCredentialsResponse](s.t, s.wire, 0, upsertSCRAM(user))
		return describeSCRAM(user)
	},
	kmsg.AlterUserSCRAMCredentials: func(s *scene, _ int16) kmsg.Request { return upsertSCRAM(s.name("user")) },
	kmsg.DescribeConfigs: func(s *scene, _ int16) kmsg.Request {
		return describeConfigs(kmsg.ConfigResourceTypeTopic, s.topic().name)
	},
	kmsg.AlterConfigs: func(s *scene, _ int16) kmsg.Request {
		return alterConfig(kmsg.ConfigResourceTypeTopic, s.topic().name, "retention.ms", "5000")
	},
	kmsg.DescribeLogDirs:  func(s *scene, _ int16) kmsg.Request { return describeLogDirs(s.topic().name, 0) },
	kmsg.CreatePartitions: func(s *scene, _ int16) kmsg.Request { return createPartitions(s.topic().name, 3) },
	kmsg.DeleteGroups: func(s *scene, _ int16) kmsg.Request {
		group, _ := s.group()
		return deleteGroup(group)
	},
	kmsg.ElectLeaders: func(s *scene, _ int16) kmsg.Request { return electLeader(s.topic().name, 0) },
	kmsg.IncrementalAlterConfigs: func(s *scene, _ int16) kmsg.Request {
		return changeConfig(kmsg.ConfigResourceTypeTopic, s.topic().name, "retention.ms", kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr("5000"))
	},
	kmsg.ListPartitionReassignments: func(*scene, int16) kmsg.Request { return kmsg.NewPtrListPartitionReassignmentsRequest() },
	kmsg.OffsetDelete: func(s *scene, _ int16) kmsg.Request {
		group, of := s.group()
		return deleteOffset(group, of.name, 0)
	},
	kmsg.UpdateFeatures:  func(*scene, int16) kmsg.Request { return updateFeature("transaction.version", 2, 1) },
	kmsg.DescribeCluster: func(*scene, int16) kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
	kmsg.DescribeProducers: func(s *scene, _ int16) kmsg.Request {
		_, of := s.inTxn()
		return describeProducers(of.name, 0)
	},
	kmsg.DescribeTransactions:    func(s *scene, _ int16) kmsg.Request { return describeTxn(s.producer().txid) },
	kmsg.ListTransactions:        func(*scene, int16) kmsg.Request { return kmsg.NewPtrListTransactionsRequest() },
	kmsg.ListConfigResources:     func(*scene, int16) kmsg.Request { return kmsg.NewPtrListConfigResourcesRequest() },
	kmsg.DescribeTopicPartitions: func(s *scene, _ int16) kmsg.Request { return describePartitions(s.topic().name) },
}

// refusal is the error a valid request of an API and version gets all the same.
func refusal(key kmsg.Key, version int16) error {
	switch {
	case key == kmsg.Produce && version < 3:
		return kerr.UnsupportedVersion // advertised for old librdkafka, which asks for the range; see KAFKA-18659
	case key == kmsg.ElectLeaders:
		return kerr.ElectionNotNeeded // there is one broker: the leader is the preferred one
	}
	return nil
}

// Every version that is advertised gets an answer of that version, to the byte,
// without an error in it.
func TestEveryVersionIsServed(t *testing.T) {
	addr := start(t, "group.initial.rebalance.delay.ms=0")
	for _, api := range kafka.APIs() {
		for version := api.Min; version <= api.Max; version++ {
			t.Run(fmt.Sprintf("%s v%d", api.Name, version), func(t *testing.T) {
				s := &scene{t: t, wire: dial(t, addr), made: int(api.Key)*1000 + int(version)*20}
				make := valid[kmsg.Key(api.Key)]
				if make == nil {
					t.Fatal("no valid request is known for it")
				}
				resp := ask[kmsg.Response](t, s.wire, version, make(s, version))
				want := refusal(kmsg.Key(api.Key), version)
				for path, code := range errorCodes(resp) {
					if got := kerr.ErrorForCode(code); got != want && path != "ErrorCode" {
						t.Errorf("%s: %v, want %v", path, got, want)
					} else if path == "ErrorCode" && got != nil {
						t.Errorf("error %v", got)
					}
				}
			})
		}
	}
}

// errorCodes returns every ErrorCode field in a response by its path.
func errorCodes(resp kmsg.Response) map[string]int16 {
	codes := map[string]int16{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(path, v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d].", path, i), v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if f.Name == "ErrorCode" {
					codes[path+f.Name] = int16(v.Field(i).Int())
				} else if f.IsExported() && f.Type.Name() != "Tags" {
					walk(path+f.Name, v.Field(i))
				}
			}
		}
	}
	walk("", reflect.ValueOf(resp))
	return codes
}

// What is not advertised ends the connection, as in Kafka: no answer could be
// decoded. ApiVersions is the exception, see its tests in server/kafka.
func TestWhatIsNotAdvertisedIsNotAnswered(t *testing.T) {
	addr := start(t)
	served := map[int16]kafka.API{}
	for _, api := range kafka.APIs() {
		served[api.Key] = api
	}
	for key := int16(-1); key <= 100; key++ {
		api, known := served[key]
		versions := []int16{0, 1}
		switch {
		case kmsg.Key(key) == kmsg.ApiVersions:
			continue
		case known:
			versions = []int16{api.Max + 1, -1}
			if api.Min > 0 {
				versions = append(versions, api.Min-1)
			}
		}
		for _, version := range versions {
			frame := binary.BigEndian.AppendUint32(nil, 10)
			frame = binary.BigEndian.AppendUint16(frame, uint16(key))
			frame = binary.BigEndian.AppendUint16(frame, uint16(version))
			frame = append(frame, 0, 0, 0, 1, 0xff, 0xff)
			if answer, err := dial(t, addr).exchange(frame); !errors.Is(err, io.EOF) {
				t.Errorf("key %d version %d: % x, %v", key, version, answer, err)
			}
		}
	}
}
