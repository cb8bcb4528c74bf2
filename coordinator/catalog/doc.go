// Package catalog knows what exists and how it is set: topics, settings changed
// at run time, finalized features, the watermark of producer ids, users, ACLs
// and quotas.
//
// It is one machine over one compacted partition, __perigee_catalog. A fact is
// the whole state of one thing, so the newest record of each key is the state:
//
//	key    ┌ i16 version=0 ┬ i8 kind ┬ identity … ┐
//	value  ┌ i16 version=0 ┬ fields … ┐                 tombstone: it is gone
//
//	kind  what             identity                       fields
//	1     topic            16-byte topic id               name, partitions, created, settings
//	2     settings         i8 resource, name              settings ("" of a broker: all brokers)
//	3     features         –                              epoch, levels
//	4     producer ids     –                              next id to hand out
//	5     user credential  i8 mechanism, user             iterations, salt, stored key, server key
//	6     ACL              the whole binding              –
//	7     quota            entity parts                   values
//
// Strings are an i16 length and bytes, lists an i32 count.
//
// # Snapshots
//
// Readers never ask the machine. Every Apply publishes an immutable [Snapshot]
// in which a topic's settings are resolved and parsed (topic value, run-time
// broker value, start value, default), so that the produce path looks at numbers
// only. Publishing copies one of 256 buckets of each index, not the catalog.
//
// A snapshot shows what is sequenced. Who tells a client about it waits for the
// entry; commands and [Read] do, through the shard.
//
// # Not here
//
// Files of topics (the façade opens and deletes partitions as the machine's
// effects ask), who may do what (server/access judges, the facts stand here),
// leadership (coordinator's placement).
package catalog
