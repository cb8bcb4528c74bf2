// Package transport owns the sockets of the broker. It knows frames, not
// messages: a protocol (Kafka, MoonMQ) is handed one whole frame at a time and
// gives back a Reply.
//
// On the wire both protocols look alike:
//
//	┌──────────────┬──────────────────────────┐
//	│ length int32 │ body, length bytes       │   big endian; the length does not count itself
//	└──────────────┴──────────────────────────┘
//
// Every connection has two goroutines. The read goroutine reserves memory,
// reads a frame, and calls Session.Serve, in arrival order; Serve does the work
// that fixes an order (an append, a join) and must not block. The write
// goroutine runs the replies in the same order and may block in them: for a
// sync, for data, for other members of a group.
//
//	socket ─► read: reserve ─► frame ─► Serve ──► queue of replies ─► write: Reply(ctx) ─► socket
//	                 ▲                             (bounded)                   │
//	                 └────────────── released when the last byte is written ◄──┘
//
// A protocol that speaks unasked (MoonMQ's pushed records and heartbeats) gives
// the write goroutine a Reply with Conn.Push, between two answers, and ends a
// connection from outside with Conn.HangUp.
//
// Goroutines: accept, one for each socket of a listener, ends when that is closed;
// read and write, one each for a connection, end when the socket is closed,
// the writer last. Server.Shutdown waits for all of them.
//
// Limits: connections (in all and for each address), bytes of a frame, bytes of
// all frames in flight, replies queued on one connection, idle time, time to
// write to a reader that does not read. Options names them and their reasons.
package transport
