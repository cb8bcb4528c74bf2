package transport

import (
	"context"
	"io"
)

// Protocol is a language spoken over frames.
type Protocol interface {
	// Name labels metrics and log lines: "kafka", "moonmq".
	Name() string
	// Open starts the conversation on a new connection. It is called on the
	// read goroutine before the first frame is read.
	Open(c *Conn) Session
}

// Session is the protocol's side of one connection.
type Session interface {
	// Serve is called on the read goroutine, in arrival order, and must not
	// block. It does the work that fixes an order and returns the rest as a
	// Reply, which the write goroutine runs in the same order. A nil Reply
	// sends nothing. After an error nothing more is read; what is queued is
	// still answered, then the connection is closed.
	Serve(f *Frame) (Reply, error)
	// Close is called once, after the last reply, whatever ended the
	// connection.
	Close()
}

// Reply produces the answer to one frame. It runs on the write goroutine and
// may block; ctx ends when the connection does. An error closes the connection.
// Every reply is run exactly once, also after the connection failed, with a ctx
// that has ended: what it holds is released there.
type Reply func(ctx context.Context) (Output, error)

// Output is what goes on the wire for one frame, its length prefix included.
// An Output without parts sends nothing. Release, when set, is called once,
// after the last byte is written or the connection has failed.
type Output struct {
	Parts   []Part
	Release func()
}

// Part is a run of bytes: in memory, or a region of a file, which is sent
// without passing through this process where the system can do that.
type Part struct {
	Bytes []byte

	File File  // nil for a part in memory
	Pos  int64 // first byte of the region
	Len  int64 // bytes of the region
}

// File is where a region comes from. It must stay open and the region unchanged
// until the Output is released.
type File interface {
	io.ReaderAt
	// Fd is the descriptor for sendfile; ok is false when there is none.
	Fd() (fd uintptr, ok bool)
}

// size returns the bytes the part puts on the wire.
func (p Part) size() int64 {
	if p.File != nil {
		return p.Len
	}
	return int64(len(p.Bytes))
}
