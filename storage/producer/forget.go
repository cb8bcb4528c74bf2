package producer

import (
	"slices"

	"github.com/perigeemq/perigee/storage/model"
)

// Forget takes aborted transactions off the list, named by the offsets of their
// markers: compaction is about to remove the markers, and a reader that was told
// of the transaction would wait for one in vain.
func (t *Table) Forget(markers []model.Offset) { t.aborted = Without(t.aborted, markers) }

// Without returns the list without the transactions that end with the given
// markers, ascending. The list it is given is not written to.
func Without(list []Aborted, markers []model.Offset) []Aborted {
	return slices.DeleteFunc(slices.Clone(list), func(a Aborted) bool {
		_, gone := slices.BinarySearch(markers, a.Last)
		return gone
	})
}
