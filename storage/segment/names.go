package segment

import (
	"errors"
	"io/fs"
	"sync"
)

// names remembers which directories have entries that no sync has covered. Log
// files share the directories on the way to them: with a thousand new partitions of
// one topic the topic's directory is synced once, by whoever comes first, instead of
// a thousand times.
type names struct {
	sync.Mutex
	last uint64            // number of the latest entry
	open map[string]uint64 // by directory: number of its latest entry that may not be durable
}

// made notes a new entry, which is there already, in each of the directories.
func (n *names) made(dirs []string) {
	n.Lock()
	defer n.Unlock()
	if n.open == nil {
		n.open = make(map[string]uint64)
	}
	n.last++
	for _, dir := range dirs {
		n.open[dir] = n.last
	}
}

// sync makes the entries of a directory durable that were noted before the call.
func (n *names) sync(dir string, syncDir func(string) error) error {
	n.Lock()
	_, open := n.open[dir]
	covered := n.last
	n.Unlock()
	if !open {
		return nil
	}
	err := syncDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n.Lock()
	defer n.Unlock()
	if n.open[dir] <= covered {
		delete(n.open, dir) // a directory that was deleted has no names to lose
	}
	return err
}
