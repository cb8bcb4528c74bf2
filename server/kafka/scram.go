package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/access"
)

// Kafka's limits of what a client may ask a broker to store.
const (
	scramIterationsLeast = 4096
	scramIterationsMost  = 16384
)

// describeUserSCRAMCredentials serves DescribeUserScramCredentials 0: mechanisms
// and iterations of users, never their keys.
func describeUserSCRAMCredentials(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
		snapshot, err := s.coordinator.ReadCatalog().Wait(ctx)
		if err != nil {
			resp.ErrorCode = codeOf(err)
			return resp
		}
		known := map[string][]catalog.Credential{}
		var all []string
		for _, c := range snapshot.Credentials() { // by user
			if known[c.User] == nil {
				all = append(all, c.User)
			}
			known[c.User] = append(known[c.User], c)
		}
		if req.Users == nil {
			for _, user := range all {
				resp.Results = append(resp.Results, describedUser(user, known[user], 1))
			}
			return resp
		}
		times := map[string]int{}
		for _, u := range req.Users {
			times[u.Name]++
		}
		for _, u := range req.Users {
			if times[u.Name] > 0 {
				resp.Results = append(resp.Results, describedUser(u.Name, known[u.Name], times[u.Name]))
				times[u.Name] = 0
			}
		}
		return resp
	}
}

func describedUser(name string, credentials []catalog.Credential, times int) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	result := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	result.User = name
	switch {
	case times > 1:
		text := "Cannot describe SCRAM credentials for the same user twice in a single request: " + name
		result.ErrorCode, result.ErrorMessage = kerr.DuplicateResource.Code, &text
	case credentials == nil:
		text := "Attempt to describe a user credential that does not exist: " + name
		result.ErrorCode, result.ErrorMessage = kerr.ResourceNotFound.Code, &text
	}
	if result.ErrorCode != 0 {
		return result
	}
	for _, c := range credentials {
		info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
		info.Mechanism, info.Iterations = int8(c.Mechanism), c.Iterations
		result.CredentialInfos = append(result.CredentialInfos, info)
	}
	return result
}

// alterUserSCRAMCredentials serves AlterUserScramCredentials 0. The client derives
// the key from the password; what is stored cannot be turned back into either.
// Users are answered one by one: a bad one does not stop the others.
func alterUserSCRAMCredentials(s *session, r *request) reply {
	req := r.body.(*kmsg.AlterUserSCRAMCredentialsRequest)
	changes, names := scramChanges(req)
	type answer struct {
		user string
		wait func(context.Context) error
	}
	var answers []answer
	for _, name := range names {
		c := changes[name]
		if c.err != nil {
			answers = append(answers, answer{name, func(context.Context) error { return c.err }})
			continue
		}
		stored := s.coordinator.PutCredentials(c.put, c.remove)
		answers = append(answers, answer{name, func(ctx context.Context) error { _, err := stored.Wait(ctx); return err }})
	}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
		for _, a := range answers {
			result := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
			result.User = a.user
			if err := a.wait(ctx); err != nil {
				text := err.Error()
				result.ErrorCode, result.ErrorMessage = codeOf(err), &text
			}
			resp.Results = append(resp.Results, result)
		}
		return resp
	}
}

// scramChange is what a request wants of one user.
type scramChange struct {
	put, remove []catalog.Credential
	named       map[int8]bool // mechanisms that stood in the request
	err         error
}

// check refuses what no user can be asked to have.
func (c *scramChange) check(name string, mechanism int8) {
	switch m := access.Mechanism(mechanism); {
	case c.err != nil:
	case name == "":
		c.err = &catalog.Error{Kind: catalog.ErrUnacceptableCredential, Text: "Username must not be empty"}
	case m != access.ScramSHA256 && m != access.ScramSHA512:
		c.err = fmt.Errorf("%w: unknown SCRAM mechanism", errUnsupportedMechanism)
	case c.named[mechanism]:
		c.err = fmt.Errorf("%w: a user credential cannot be altered twice in the same request", errDuplicateResource)
	}
	if c.named == nil {
		c.named = map[int8]bool{}
	}
	c.named[mechanism] = true
}

// What only these requests can be refused with.
var (
	errUnsupportedMechanism = errors.New("unsupported SASL mechanism")
	errDuplicateResource    = errors.New("duplicate resource")
)

func scramChanges(req *kmsg.AlterUserSCRAMCredentialsRequest) (map[string]*scramChange, []string) {
	changes, names := map[string]*scramChange{}, []string{}
	of := func(name string) *scramChange {
		if changes[name] == nil {
			changes[name] = &scramChange{}
			names = append(names, name)
		}
		return changes[name]
	}
	for _, d := range req.Deletions {
		c := of(d.Name)
		c.check(d.Name, d.Mechanism)
		c.remove = append(c.remove, catalog.Credential{User: d.Name, Mechanism: catalog.Mechanism(d.Mechanism)})
	}
	for _, u := range req.Upsertions {
		c := of(u.Name)
		c.check(u.Name, u.Mechanism)
		switch {
		case c.err != nil:
		case u.Iterations < scramIterationsLeast:
			c.err = &catalog.Error{Kind: catalog.ErrUnacceptableCredential, Text: "Too few iterations"}
		case u.Iterations > scramIterationsMost:
			c.err = &catalog.Error{Kind: catalog.ErrUnacceptableCredential, Text: "Too many iterations"}
		default:
			m := access.Mechanism(u.Mechanism)
			keys := access.FromSalted(m, u.SaltedPassword, bytes.Clone(u.Salt), int(u.Iterations)) // the frame ends with the reply
			c.put = append(c.put, catalog.Credential{User: u.Name, Mechanism: catalog.Mechanism(m), Iterations: u.Iterations,
				Salt: keys.Salt, StoredKey: keys.StoredKey, ServerKey: keys.ServerKey})
		}
	}
	return changes, names
}
