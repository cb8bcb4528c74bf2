package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// Kinds of endpoints DescribeCluster can be asked about.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// describeCluster serves DescribeCluster 0 to 2: 1 says what kind of endpoint is
// meant, 2 adds fenced brokers, of which we have none.
func describeCluster(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	if r.version >= 1 && req.EndpointType != endpointBrokers {
		text := fmt.Sprintf("Unsupported endpoint type %d", req.EndpointType)
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		if req.EndpointType == endpointControllers {
			text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
			resp.ErrorCode = kerr.MismatchedEndpointType.Code
		}
		resp.ErrorMessage, resp.ControllerID = &text, -1
		return now(resp)
	}
	resp.ClusterID, resp.ControllerID = s.coordinator.ClusterID(), s.coordinator.Here().Node
	b := kmsg.NewDescribeClusterResponseBroker()
	b.NodeID, b.Rack = s.coordinator.Here().Node, s.rack()
	b.Host, b.Port = s.advertised()
	resp.Brokers = append(resp.Brokers, b)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return now(resp)
}

// listPartitionReassignments serves ListPartitionReassignments 0: with one
// broker nothing is ever on its way to another.
func listPartitionReassignments(_ *session, r *request) reply {
	return now(r.body.ResponseKind())
}

// Kinds of elections.
const (
	electPreferred = 0
	electUnclean   = 1
)

// electLeaders serves ElectLeaders 0 to 2: 1 adds the kind of election and an
// error for all, 2 is flexible. The one broker leads everything, so no election
// is ever needed; asked about all partitions, each is left out, as in Kafka.
func electLeaders(s *session, r *request) reply {
	req := r.body.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	kindKnown := r.version == 0 || req.ElectionType == electPreferred || req.ElectionType == electUnclean
	if !kindKnown {
		resp.ErrorCode = kerr.InvalidRequest.Code
	}
	snapshot := s.coordinator.Catalog()
	for i := range req.Topics {
		asked := &req.Topics[i]
		elected := kmsg.NewElectLeadersResponseTopic()
		elected.Topic = asked.Topic
		t, exists := snapshot.Topic(asked.Topic)
		for _, partition := range asked.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = partition
			text := "Leader election not needed for topic partition."
			p.ErrorCode = kerr.ElectionNotNeeded.Code
			switch {
			case !kindKnown:
				text, p.ErrorCode = fmt.Sprintf("Unknown election type %d", req.ElectionType), kerr.InvalidRequest.Code
			case !exists:
				text, p.ErrorCode = "No such topic as "+asked.Topic, kerr.UnknownTopicOrPartition.Code
			case !t.Has(partition):
				text, p.ErrorCode = fmt.Sprintf("No such partition as %s-%d", asked.Topic, partition), kerr.UnknownTopicOrPartition.Code
			}
			p.ErrorMessage = &text
			elected.Partitions = append(elected.Partitions, p)
		}
		resp.Topics = append(resp.Topics, elected)
	}
	if req.Topics == nil && kindKnown {
		for _, t := range snapshot.Topics() {
			if s.coordinator.Listed(t) {
				all := kmsg.NewElectLeadersResponseTopic()
				all.Topic = t.Name
				resp.Topics = append(resp.Topics, all)
			}
		}
	}
	return now(resp)
}

// Kinds of feature updates. Version 0 has a flag instead, which Kafka does not look
// at any more: it can only raise.
const (
	upgradeOnly     = 1
	unsafeDowngrade = 3
)

// updateFeatures serves UpdateFeatures 0 to 2: 1 tells kinds of downgrades apart
// and can only validate, 2 has one error for all. A refused update refuses all,
// and is answered with one error in every version, as in Kafka.
func updateFeatures(s *session, r *request) reply {
	req := r.body.(*kmsg.UpdateFeaturesRequest)
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	updates := make([]catalog.FeatureUpdate, len(req.FeatureUpdates))
	for i, u := range req.FeatureUpdates {
		updates[i] = catalog.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel}
		if r.version == 0 {
			continue
		}
		updates[i].Downgrade = u.UpgradeType > upgradeOnly
		if u.UpgradeType < upgradeOnly || u.UpgradeType > unsafeDowngrade {
			refuseFeatures(resp, fmt.Sprintf("Invalid update version %d for feature %s. The controller does not support the given upgrade type.", u.MaxVersionLevel, u.Feature))
			return now(resp)
		}
	}
	updated := s.coordinator.UpdateFeatures(updates, req.ValidateOnly)
	return func(ctx context.Context) kmsg.Response {
		errs, err := updated.Wait(ctx)
		if err != nil {
			resp.ErrorCode, resp.ErrorMessage = codeOf(err), wordsOf(err)
			return resp
		}
		for _, err := range errs {
			if err != nil {
				refuseFeatures(resp, err.Error())
				return resp
			}
		}
		for _, u := range updates {
			result := kmsg.NewUpdateFeaturesResponseResult()
			result.Feature, result.ErrorMessage = u.Name, kmsg.StringPtr("NONE")
			resp.Results = append(resp.Results, result)
		}
		return resp
	}
}

func refuseFeatures(resp *kmsg.UpdateFeaturesResponse, why string) {
	text := "The update failed for all features since the following feature had an error: " + why
	resp.ErrorCode, resp.ErrorMessage = kerr.InvalidUpdateVersion.Code, &text
}

// wordsOf is an error message for an answer: nil for no error, and for errors
// whose code says it all.
func wordsOf(err error) *string {
	if err == nil || err == catalog.ErrUnknownTopic {
		return nil
	}
	text := err.Error()
	return &text
}
