package coordinator

import (
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
)

// PutCredentials stores users' credentials and forgets others, all or none.
// What there is shows Catalog().Credentials.
func (c *Coordinator) PutCredentials(put, remove []catalog.Credential) machine.Future[struct{}] {
	return change(c, func(p *machine.Promise[struct{}]) catalog.Command {
		return catalog.PutCredentials{Put: put, Delete: remove, To: p}
	})
}

// PutACLs stores ACL bindings and removes others.
func (c *Coordinator) PutACLs(put, remove []catalog.ACL) machine.Future[struct{}] {
	return change(c, func(p *machine.Promise[struct{}]) catalog.Command {
		return catalog.PutACLs{Put: put, Delete: remove, To: p}
	})
}

// PutQuotas sets the limits of entities; an entity without limits is removed.
func (c *Coordinator) PutQuotas(quotas []catalog.Quota) machine.Future[struct{}] {
	return change(c, func(p *machine.Promise[struct{}]) catalog.Command {
		return catalog.PutQuotas{Put: quotas, To: p}
	})
}
