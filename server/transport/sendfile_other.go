//go:build !linux

package transport

// sendRegion sends n bytes of f from pos.
func (c *Conn) sendRegion(f File, pos, n int64) error { return c.copyRegion(f, pos, n) }

func (c *Conn) gathers([]Part) bool                { return false }
func (c *Conn) writeGathered([]Part) (bool, error) { return false, nil }
