// Package moonmq is the codec of the MoonMQ client protocol, version 1: bytes
// to typed messages and back. It has no sockets, no state and no locks, and
// imports nothing of ours; every function may be called from any goroutine.
//
// A frame, big-endian throughout:
//
//	 0        4    5                 21
//	┌────────┬────┬─────────────────┬─────────────┐
//	│ length │ op │ correlation id  │ payload     │
//	│ u32    │ u8 │ 16 bytes        │ length - 17 │
//	└────────┴────┴─────────────────┴─────────────┘
//
// length counts everything after itself. A str is a u32 byte count and the
// bytes, which are never validated as UTF-8. Bytes after the last field a
// decoder knows are ignored: this is how the protocol grows, so an encoder must
// never put something vital there. Partition numbers start at 1 on this wire;
// the codec passes them through, the front end translates.
//
// Requests are decoded with the limits a server applies and replies with the
// limits the Lua client applies; every count and length is checked against its
// limit and against the bytes at hand before anything is allocated. Keys and
// values of a decoded message alias the payload it was decoded from; names are
// copied. The texts of decoding errors reach applications word for word and
// are therefore part of the protocol.
//
// Perigee extensions, invisible to a client that does not ask for them: a
// block of record headers after the last field of PRODUCE and
// PRODUCE_IDEMPOTENT (Headers), the FETCH flags FetchNoCommit and FetchHeaders.
package moonmq
