package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newACLCommand(s *session) *cobra.Command {
	return newFamily("acl", "Allow and deny operations to users",
		newACLCreateCommand(s), newACLListCommand(s), newACLDeleteCommand(s))
}

// aclOptions name bindings, or filter them: what is not given matches all.
type aclOptions struct {
	allow, deny           []string
	allowHosts, denyHosts []string
	operations            []string
	topics, groups, txns  []string
	cluster               bool
	pattern               string
}

func (o *aclOptions) add(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&o.allow, "allow", nil, "users the binding allows, * for everyone")
	f.StringSliceVar(&o.deny, "deny", nil, "users the binding denies")
	f.StringSliceVar(&o.allowHosts, "allow-host", nil, "hosts an allowed user comes from (default any)")
	f.StringSliceVar(&o.denyHosts, "deny-host", nil, "hosts a denied user comes from (default any)")
	f.StringSliceVarP(&o.operations, "operation", "o", nil, "all, read, write, create, delete, alter, describe, …")
	f.StringSliceVarP(&o.topics, "topic", "t", nil, "topics, * for all")
	f.StringSliceVarP(&o.groups, "group", "g", nil, "groups, * for all")
	f.StringSliceVar(&o.txns, "transactional-id", nil, "transactional ids and MoonMQ producer names")
	f.BoolVar(&o.cluster, "cluster", false, "the cluster")
	f.StringVar(&o.pattern, "pattern", "literal", "how names are meant: literal or prefixed")
}

// builder translates the options. For a filter, what is not given matches all.
func (o *aclOptions) builder(filter bool) (*kadm.ACLBuilder, error) {
	b := kadm.NewACLs().MaybeTopics(o.topics...).MaybeGroups(o.groups...).MaybeTransactionalIDs(o.txns...).MaybeClusters(o.cluster).
		MaybeAllow(o.allow...).MaybeDeny(o.deny...).MaybeAllowHosts(o.allowHosts...).MaybeDenyHosts(o.denyHosts...)
	switch strings.ToLower(o.pattern) {
	case "literal":
		b.ResourcePatternType(kadm.ACLPatternLiteral)
	case "prefixed":
		b.ResourcePatternType(kadm.ACLPatternPrefixed)
	case "any":
		b.ResourcePatternType(kadm.ACLPatternAny)
	default:
		return nil, usagef("--pattern %s: want literal or prefixed", o.pattern)
	}
	var operations []kadm.ACLOperation
	for _, name := range o.operations {
		op, err := kmsg.ParseACLOperation(name)
		if err != nil {
			return nil, usagef("--operation %s: %w", name, err)
		}
		operations = append(operations, op)
	}
	b.MaybeOperations(operations...)
	if filter {
		o.widen(b)
	}
	b.PrefixUser()
	return b, nil
}

// widen makes a filter of what names too little.
func (o *aclOptions) widen(b *kadm.ACLBuilder) {
	if !b.HasResource() {
		b.AnyResource()
	}
	if len(o.operations) == 0 {
		b.Operations(kadm.OpAny)
	}
	if len(o.allow) == 0 && len(o.deny) == 0 {
		b.Allow().Deny()
	}
	if len(o.allowHosts) == 0 {
		b.AllowHosts()
	}
	if len(o.denyHosts) == 0 {
		b.DenyHosts()
	}
}

type binding struct {
	Principal  string `json:"principal"`
	Host       string `json:"host"`
	Resource   string `json:"resource"`
	Name       string `json:"name"`
	Pattern    string `json:"pattern"`
	Operation  string `json:"operation"`
	Permission string `json:"permission"`
	Error      string `json:"error,omitempty"`
}

func bindingTable(all []binding) table {
	t := table{header: []string{"PRINCIPAL", "HOST", "RESOURCE", "NAME", "PATTERN", "OPERATION", "PERMISSION"}}
	for _, b := range all {
		t.add(b.Principal, b.Host, b.Resource, b.Name, b.Pattern, b.Operation, b.Permission)
	}
	return t
}

func newACLCreateCommand(s *session) *cobra.Command {
	var o aclOptions
	c := &cobra.Command{
		Use:   "create",
		Short: "Create bindings",
		Example: "  perigee acl create --allow alice -o read -t orders -g billing\n" +
			"  perigee acl create --allow service -o write -t 'orders.' --pattern prefixed\n" +
			"  perigee acl create --deny mallory -o all --cluster",
		Args: arguments(cobra.NoArgs),
	}
	o.add(c)
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
		b, err := o.builder(false)
		if err != nil {
			return err
		}
		if len(o.allow) > 0 && len(o.allowHosts) == 0 {
			b.AllowHosts()
		}
		if len(o.deny) > 0 && len(o.denyHosts) == 0 {
			b.DenyHosts()
		}
		if err := b.ValidateCreate(); err != nil {
			return usagef("%w", err)
		}
		created, err := admin.CreateACLs(ctx, b)
		if err != nil {
			return fmt.Errorf("create ACLs: %w", err)
		}
		results := []binding{}
		for _, r := range created {
			one := binding{r.Principal, r.Host, r.Type.String(), r.Name, r.Pattern.String(), r.Operation.String(), r.Permission.String(), ""}
			if err := withMessage(r.Err, r.ErrMessage); err != nil {
				one.Error = message(err)
				out.item(one.Principal+" "+one.Resource+" "+one.Name, err)
			}
			results = append(results, one)
		}
		return out.print(results, bindingTable(results))
	})
	return c
}

func newACLListCommand(s *session) *cobra.Command {
	var o aclOptions
	c := &cobra.Command{
		Use:     "list",
		Short:   "List bindings",
		Long:    "List bindings. Rules of an appsettings.json are not listed: they belong to the file.",
		Example: "  perigee acl list\n  perigee acl list -t orders",
		Args:    arguments(cobra.NoArgs),
	}
	o.add(c)
	c.Flags().Lookup("pattern").DefValue = "any"
	o.pattern = "any"
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
		b, err := o.builder(true)
		if err != nil {
			return err
		}
		described, err := admin.DescribeACLs(ctx, b)
		if err != nil {
			return fmt.Errorf("describe ACLs: %w", err)
		}
		results := []binding{}
		seen := map[binding]bool{}
		for _, r := range described {
			if err := withMessage(r.Err, r.ErrMessage); err != nil {
				return fmt.Errorf("describe ACLs: %w", err)
			}
			for _, d := range r.Described {
				one := binding{d.Principal, d.Host, d.Type.String(), d.Name, d.Pattern.String(), d.Operation.String(), d.Permission.String(), ""}
				if !seen[one] {
					seen[one] = true
					results = append(results, one)
				}
			}
		}
		return out.print(results, bindingTable(results))
	})
	return c
}

func newACLDeleteCommand(s *session) *cobra.Command {
	var o aclOptions
	var yes bool
	c := &cobra.Command{
		Use:     "delete",
		Short:   "Delete bindings that match",
		Long:    "Delete every binding that matches; what is not given matches all.",
		Example: "  perigee acl delete --allow alice -t orders --yes",
		Args:    arguments(cobra.NoArgs),
	}
	o.add(c)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
		b, err := o.builder(true)
		if err != nil {
			return err
		}
		if err := out.confirm(yes, "delete every binding that matches"); err != nil {
			return err
		}
		deleted, err := admin.DeleteACLs(ctx, b)
		if err != nil {
			return fmt.Errorf("delete ACLs: %w", err)
		}
		results := []binding{}
		for _, r := range deleted {
			if err := withMessage(r.Err, r.ErrMessage); err != nil {
				out.item(r.Type.String(), err)
			}
			for _, d := range r.Deleted {
				results = append(results, binding{d.Principal, d.Host, d.Type.String(), d.Name, d.Pattern.String(), d.Operation.String(), d.Permission.String(), message(d.Err)})
			}
		}
		return out.print(results, bindingTable(results))
	})
	return c
}
