package catalog

import (
	"hash/maphash"
	"iter"
	"maps"
)

// index is an immutable map that is cheap to change: a change copies the table
// of buckets and one bucket, so a thousand new topics in a catalog of ten
// thousand do not copy ten million entries.
type index[K comparable, V any] struct {
	buckets *[indexBuckets]map[K]V
	size    int
}

const indexBuckets = 256

var indexSeed = maphash.MakeSeed()

func bucketOf[K comparable](k K) int { return int(maphash.Comparable(indexSeed, k) % indexBuckets) }

func (x index[K, V]) get(k K) (V, bool) {
	if x.buckets == nil {
		var none V
		return none, false
	}
	v, ok := x.buckets[bucketOf(k)][k]
	return v, ok
}

// with returns an index that also has k.
func (x index[K, V]) with(k K, v V) index[K, V] {
	y, at := x.copyBucket(k)
	if _, had := y.buckets[at][k]; !had {
		y.size++
	}
	y.buckets[at][k] = v
	return y
}

// without returns an index that does not have k.
func (x index[K, V]) without(k K) index[K, V] {
	if _, had := x.get(k); !had {
		return x
	}
	y, at := x.copyBucket(k)
	delete(y.buckets[at], k)
	y.size--
	return y
}

func (x index[K, V]) copyBucket(k K) (index[K, V], int) {
	y := index[K, V]{buckets: new([indexBuckets]map[K]V), size: x.size}
	if x.buckets != nil {
		*y.buckets = *x.buckets
	}
	at := bucketOf(k)
	if y.buckets[at] = maps.Clone(y.buckets[at]); y.buckets[at] == nil {
		y.buckets[at] = map[K]V{}
	}
	return y, at
}

// all goes through the entries in no order.
func (x index[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if x.buckets == nil {
			return
		}
		for _, bucket := range x.buckets {
			for k, v := range bucket {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}
