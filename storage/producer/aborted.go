package producer

import (
	"cmp"
	"slices"
	"sort"

	"github.com/perigeemq/perigee/storage/model"
)

// Aborted is one finished transaction that had records here and was rolled back:
// what a read_committed reader must hide.
type Aborted struct {
	ProducerID model.ProducerID
	First      model.Offset // of its first record
	Last       model.Offset // of its marker
	Stable     model.Offset // last stable offset once the marker stood: no later entry begins below it
}

// SelectAborted chooses from a partition's list (by Last) what a reader of
// [from, upper) must know: every transaction that ended at or after from and began
// before upper, by First. Those that ended before from are left out: their
// producer's later records would be dropped with them by clients that go by
// producer. If there are more than limit, upper is lowered until there are not;
// the upper that was served is returned.
func SelectAborted(list []Aborted, from, upper model.Offset, limit int) ([]Aborted, model.Offset) {
	chosen := []Aborted{}
	i := sort.Search(len(list), func(i int) bool { return list[i].Last >= from })
	for ; i < len(list); i++ {
		if list[i].First < upper {
			chosen = append(chosen, list[i])
		}
		if list[i].Stable >= upper {
			break
		}
	}
	slices.SortStableFunc(chosen, func(a, b Aborted) int { return cmp.Compare(a.First, b.First) })
	if len(chosen) > limit && chosen[limit].First > from {
		upper = chosen[limit].First
		chosen = slices.DeleteFunc(chosen, func(a Aborted) bool { return a.First >= upper })
	}
	return chosen, upper
}
