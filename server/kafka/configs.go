package kafka

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
)

// describeConfigs serves DescribeConfigs 0 to 4: 1 tells sources and synonyms,
// where 0 only tells defaults from others, 3 types and documentation, 4 is
// flexible.
func describeConfigs(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeConfigsRequest)
	durable := s.coordinator.ReadCatalog()
	return func(ctx context.Context) kmsg.Response {
		snapshot, failure := durable.Wait(ctx)
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		unbound := 0
		for _, asked := range distinctResources(req.Resources) {
			found, err := []config.Resolved(nil), failure
			if err == nil && !mustExist(asked.ResourceType) {
				if unbound++; unbound > maxUnbound {
					err = errManyNames
				}
			}
			if err == nil {
				found, err = s.resolve(snapshot, asked)
			}
			d := kmsg.NewDescribeConfigsResponseResource()
			d.ResourceType, d.ResourceName, d.ErrorCode = asked.ResourceType, asked.ResourceName, codeOf(err)
			if d.ErrorMessage = wordsOf(err); d.ErrorMessage == nil {
				d.ErrorMessage = new(string) // Kafka's is empty, not null
			}
			d.Configs = describeAll(req, asked.ConfigNames, found)
			resp.Resources = append(resp.Resources, d)
		}
		return resp
	}
}

// Groups and subscriptions have settings whether they exist or not, so that nothing but
// this limits how many of them one request asks for.
const maxUnbound = 5000

var errManyNames = &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: fmt.Sprintf("At most %d groups and client metrics subscriptions can be described in one request", maxUnbound)}

func mustExist(kind kmsg.ConfigResourceType) bool {
	r := config.Resource(kind)
	return r != config.ResourceGroup && r != config.ResourceClientMetrics
}

// distinctResources brings what is asked about one resource into one place: an
// answer is four thousand times as long as its question, and must not be given as
// often as somebody asks.
func distinctResources(asked []kmsg.DescribeConfigsRequestResource) []*kmsg.DescribeConfigsRequestResource {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	var distinct []*kmsg.DescribeConfigsRequestResource
	first := map[resource]*kmsg.DescribeConfigsRequestResource{}
	for i := range asked {
		a := &asked[i]
		switch f := first[resource{a.ResourceType, a.ResourceName}]; {
		case f == nil:
			first[resource{a.ResourceType, a.ResourceName}] = a
			distinct = append(distinct, a)
		case len(f.ConfigNames) == 0: // all of them already
		case len(a.ConfigNames) == 0:
			f.ConfigNames = nil
		default:
			f.ConfigNames = append(f.ConfigNames, a.ConfigNames...)
		}
	}
	return distinct
}

// resolve finds the effective settings of a resource.
func (s *session) resolve(snapshot *catalog.Snapshot, asked *kmsg.DescribeConfigsRequestResource) ([]config.Resolved, error) {
	v, name := snapshot.Values(), asked.ResourceName
	switch config.Resource(asked.ResourceType) {
	case config.ResourceTopic:
		if err := catalog.CheckTopicName(name); err != nil {
			return nil, err
		}
		t, ok := snapshot.Topic(name)
		if !ok {
			return nil, catalog.ErrUnknownTopic
		}
		return resolveTable(config.TopicTable, t.Overrides, v.Topic), nil
	case config.ResourceBroker:
		return s.resolveBroker(v, name)
	case config.ResourceGroup:
		if name == "" {
			return nil, &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Group name must not be empty"}
		}
		return resolveTable(config.GroupTable, snapshot.GroupSettings(name), v.Group), nil
	case config.ResourceClientMetrics:
		if name == "" {
			return nil, &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Client metrics subscription name must not be empty"}
		}
		return resolveTable(config.ClientMetricsTable, snapshot.ClientMetrics(name), v.ClientMetrics), nil
	}
	return nil, &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: fmt.Sprintf("Unsupported resource type %d", asked.ResourceType)}
}

// resolveTable resolves a table's settings for one resource. Hidden ones appear
// when they are set.
func resolveTable(t *config.Table, own map[string]string, resolve func(*config.Key, map[string]string) config.Resolved) []config.Resolved {
	var found []config.Resolved
	for _, k := range t.Keys() {
		if _, set := own[k.Name]; set || !k.Hidden {
			found = append(found, resolve(k, own))
		}
	}
	return found
}

// resolveBroker resolves this broker's settings, or for an empty name those that
// were given to all brokers at run time.
func (s *session) resolveBroker(v config.Values, name string) ([]config.Resolved, error) {
	var found []config.Resolved
	if name == "" {
		onlyDefaults := config.Values{ClusterDefault: v.ClusterDefault}
		for _, k := range config.BrokerTable.Keys() {
			if r := onlyDefaults.Broker(k); r.Source == config.SourceClusterDefault {
				r.Synonyms = r.Synonyms[:1]
				found = append(found, r)
			}
		}
		return found, nil
	}
	node := s.coordinator.Here().Node
	switch id, err := strconv.ParseInt(name, 10, 32); {
	case err != nil:
		return nil, &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Broker id must be an integer, but it is: " + name}
	case id != int64(node):
		return nil, &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: fmt.Sprintf("Unexpected broker id, expected %d or empty string, but received %s", node, name)}
	}
	for _, k := range config.BrokerTable.Keys() {
		found = append(found, v.Broker(k))
	}
	return found, nil
}

// describeAll translates settings, all of them or, when some are named, those.
func describeAll(req *kmsg.DescribeConfigsRequest, names []string, found []config.Resolved) []kmsg.DescribeConfigsResponseResourceConfig {
	configs := []kmsg.DescribeConfigsResponseResourceConfig{}
	named := make(map[string]bool, len(names))
	for _, name := range names {
		named[name] = true
	}
	for _, r := range found {
		if len(names) > 0 && !named[r.Key.Name] {
			continue
		}
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value = r.Key.Name, valueOf(r.Value, r.Null)
		c.ReadOnly, c.IsSensitive, c.IsDefault = r.Key.ReadOnly(), r.Key.Sensitive, r.Source == config.SourceDefault
		c.Source, c.ConfigType = kmsg.ConfigSource(r.Source), kmsg.ConfigType(r.Key.Type)
		if req.IncludeDocumentation {
			c.Documentation = &r.Key.Doc
		}
		if req.IncludeSynonyms {
			c.ConfigSynonyms = synonymsOf(r)
		}
		configs = append(configs, c)
	}
	return configs
}

func synonymsOf(r config.Resolved) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	synonyms := []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	for _, s := range r.Synonyms {
		y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		y.Name, y.Value, y.Source = s.Name, valueOf(s.Value, s.Null), kmsg.ConfigSource(s.Source)
		synonyms = append(synonyms, y)
	}
	return synonyms
}

// alterConfigs serves AlterConfigs 0 to 2: what is not named is forgotten. 2 is
// flexible.
func alterConfigs(s *session, r *request) reply {
	req := r.body.(*kmsg.AlterConfigsRequest)
	changes := make([]catalog.ConfigChange, len(req.Resources))
	for i := range req.Resources {
		asked := &req.Resources[i]
		changes[i] = catalog.ConfigChange{Type: config.Resource(asked.ResourceType), Name: asked.ResourceName, Replace: true}
		for _, c := range asked.Configs {
			changes[i].Changes = append(changes[i].Changes, catalog.Alteration{Op: catalog.OpSet, Name: c.Name, Value: c.Value})
		}
	}
	altered := s.coordinator.AlterConfigs(changes, req.ValidateOnly)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
		for _, a := range alterations(ctx, altered, changes) {
			t := kmsg.NewAlterConfigsResponseResource()
			t.ResourceType, t.ResourceName = kmsg.ConfigResourceType(a.Type), a.Name
			t.ErrorCode, t.ErrorMessage = codeOf(a.err), wordsOf(a.err)
			resp.Resources = append(resp.Resources, t)
		}
		return resp
	}
}

// incrementalAlterConfigs serves IncrementalAlterConfigs 0 and 1, which is
// flexible: only what is named changes.
func incrementalAlterConfigs(s *session, r *request) reply {
	req := r.body.(*kmsg.IncrementalAlterConfigsRequest)
	changes := make([]catalog.ConfigChange, len(req.Resources))
	for i := range req.Resources {
		asked := &req.Resources[i]
		changes[i] = catalog.ConfigChange{Type: config.Resource(asked.ResourceType), Name: asked.ResourceName}
		for _, c := range asked.Configs {
			changes[i].Changes = append(changes[i].Changes, catalog.Alteration{Op: catalog.Op(c.Op), Name: c.Name, Value: c.Value})
		}
	}
	altered := s.coordinator.AlterConfigs(changes, req.ValidateOnly)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for _, a := range alterations(ctx, altered, changes) {
			t := kmsg.NewIncrementalAlterConfigsResponseResource()
			t.ResourceType, t.ResourceName = kmsg.ConfigResourceType(a.Type), a.Name
			t.ErrorCode, t.ErrorMessage = codeOf(a.err), wordsOf(a.err)
			resp.Resources = append(resp.Resources, t)
		}
		return resp
	}
}

// alteration is a change and what became of it.
type alteration struct {
	catalog.ConfigChange
	err error
}

func alterations(ctx context.Context, altered machine.Future[[]error], changes []catalog.ConfigChange) []alteration {
	errs, err := altered.Wait(ctx)
	results := make([]alteration, len(changes))
	for i, c := range changes {
		results[i] = alteration{c, err}
		if err == nil {
			results[i].err = errs[i]
		}
	}
	return results
}

// listConfigResources serves ListConfigResources 0 and 1: 0 lists client metrics
// subscriptions, 1 the kinds that are asked for, or all.
func listConfigResources(s *session, r *request) reply {
	req := r.body.(*kmsg.ListConfigResourcesRequest)
	durable := s.coordinator.ReadCatalog()
	return func(ctx context.Context) kmsg.Response {
		snapshot, err := durable.Wait(ctx)
		resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
		if err != nil {
			resp.ErrorCode = codeOf(err)
			return resp
		}
		kinds := req.ResourceTypes
		switch {
		case r.version == 0:
			kinds = []int8{int8(config.ResourceClientMetrics)}
		case len(kinds) == 0:
			kinds = []int8{int8(config.ResourceBroker), int8(config.ResourceTopic), int8(config.ResourceClientMetrics), int8(config.ResourceGroup)}
		}
		var listed [1 << 8]bool // a kind that is named often is listed once
		for _, kind := range kinds {
			if listed[uint8(kind)] {
				continue
			}
			listed[uint8(kind)] = true
			names, ok := s.resourceNames(snapshot, config.Resource(kind))
			if !ok {
				resp.ErrorCode, resp.ConfigResources = kerr.UnsupportedVersion.Code, nil
				return resp
			}
			for _, name := range names {
				c := kmsg.NewListConfigResourcesResponseConfigResource()
				c.Name, c.Type = name, kind
				resp.ConfigResources = append(resp.ConfigResources, c)
			}
		}
		return resp
	}
}

// resourceNames lists the resources of a kind that can be configured.
func (s *session) resourceNames(snapshot *catalog.Snapshot, kind config.Resource) (names []string, ok bool) {
	switch kind {
	case config.ResourceTopic:
		for _, t := range snapshot.Topics() {
			if s.coordinator.Listed(t) {
				names = append(names, t.Name)
			}
		}
	case config.ResourceBroker:
		names = []string{strconv.Itoa(int(s.coordinator.Here().Node))}
	case config.ResourceBrokerLogger: // log levels are not resources here
	case config.ResourceClientMetrics:
		names = snapshot.ClientMetricsNames()
	case config.ResourceGroup:
		names = snapshot.GroupsWithSettings()
	default:
		return nil, false
	}
	return names, true
}
