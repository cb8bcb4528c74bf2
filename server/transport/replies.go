package transport

import (
	"fmt"
	"net"
	"runtime/pprof"
	"sync"
	"time"
)

const (
	// copyBelow is the size up to which a region of a file is read into memory
	// and leaves together with the bytes around it: one write and one wake-up of
	// the client instead of two.
	copyBelow = 16 << 10
	// collectAtMost bounds the bytes of answers that wait for each other.
	collectAtMost = 256 << 10
)

var copyBuffers = sync.Pool{New: func() any { return new([copyBelow]byte) }}

// writer is the state of the write goroutine: answers collected for the next
// write, and what is to be released after it.
type writer struct {
	parts    []Part
	bytes    int64
	releases []func()
	frames   []*Frame
	failed   bool        // nothing more can be sent
	vector   net.Buffers // scratch of writeParts
}

// writeReplies is the write goroutine. It runs every queued reply exactly once,
// in order. After a failed write the rest are run with a context that has
// ended, so that they release what they hold, and nothing is sent.
//
// Answers that are ready one after the other are collected and leave in one
// write; they leave before a reply that may block is run.
func (c *Conn) writeReplies() {
	pprof.SetGoroutineLabels(c.listener.writeLabels)
	for {
		item, ok := c.nextReply()
		if !ok {
			break
		}
		if len(c.out.frames) > 0 && !item.isReady() {
			c.flush()
		}
		if err := c.collect(item); err != nil {
			c.fail(err)
		}
		if len(c.queue) == 0 || c.out.bytes >= collectAtMost {
			c.flush()
		}
	}
	c.flush()
}

// nextReply returns the next answer, or what another goroutine pushes between
// two answers; false when the connection has ended.
func (c *Conn) nextReply() (queued, bool) {
	select {
	case item, ok := <-c.queue:
		return item, ok
	case pushed := <-c.pushes:
		return queued{reply: pushed}, true
	}
}

// fail ends the connection from the write side. Only the first error counts.
func (c *Conn) fail(err error) {
	c.out.failed = true
	c.cancel(err)
	c.socket.Close() // wakes the read goroutine
}

// collect runs a reply and keeps its answer for the next flush.
func (c *Conn) collect(item queued) (err error) {
	if item.frame != nil {
		c.out.frames = append(c.out.frames, item.frame)
	}
	defer func() {
		if p := recover(); p != nil {
			if item.frame != nil {
				item.frame.Abandon()
			}
			err = c.crashed(p)
		}
	}()
	output, err := item.reply(c.ctx)
	if output.Release != nil {
		c.out.releases = append(c.out.releases, output.Release)
	}
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	for _, p := range output.Parts {
		if n := p.size(); n > 0 {
			c.out.parts = append(c.out.parts, p)
			c.out.bytes += n
		}
	}
	return nil
}

// flush writes the collected answers and releases what they held.
func (c *Conn) flush() {
	w := &c.out
	if w.bytes > 0 && !w.failed {
		if err := c.writeParts(w.parts); err != nil {
			c.fail(err)
		}
		c.server.stats.BytesOut.Add(w.bytes)
	}
	for _, release := range w.releases {
		release()
	}
	for _, f := range w.frames {
		f.Release()
	}
	c.outstanding.Add(-int32(len(w.frames)))
	clear(w.parts)
	clear(w.releases)
	clear(w.frames)
	w.parts, w.releases, w.frames, w.bytes = w.parts[:0], w.releases[:0], w.frames[:0], 0
}

// writeParts writes runs of memory parts with one call each and sends file
// regions between them. Small regions are turned into memory parts.
func (c *Conn) writeParts(parts []Part) error {
	if c.gathers(parts) {
		if gathered, err := c.writeGathered(parts); gathered {
			return err
		}
	}
	w := &c.out
	w.vector = w.vector[:0]
	var copies []*[copyBelow]byte
	defer func() {
		for _, b := range copies {
			copyBuffers.Put(b)
		}
	}()
	for _, p := range parts {
		switch {
		case p.File == nil:
			w.vector = append(w.vector, p.Bytes)
		case p.Len <= copyBelow:
			b := copyBuffers.Get().(*[copyBelow]byte)
			copies = append(copies, b)
			if err := readRegion(p.File, b[:p.Len], p.Pos); err != nil {
				return err
			}
			w.vector = append(w.vector, b[:p.Len])
		default:
			if err := c.writeVector(); err != nil {
				return err
			}
			if err := c.sendRegion(p.File, p.Pos, p.Len); err != nil {
				return fmt.Errorf("send file region: %w", err)
			}
		}
	}
	return c.writeVector()
}

// writeVector writes and empties w.vector. Sockets without writev (TLS, in
// process) get one buffer, so that a TLS record is not spent on every part.
func (c *Conn) writeVector() error {
	w := &c.out
	if len(w.vector) == 0 {
		return nil
	}
	c.armWrite()
	var err error
	switch {
	case len(w.vector) == 1:
		_, err = c.socket.Write(w.vector[0])
	case c.raw != nil:
		rest := w.vector
		_, err = rest.WriteTo(c.socket)
	default:
		var joined []byte
		for _, b := range w.vector {
			joined = append(joined, b...)
		}
		_, err = c.socket.Write(joined)
	}
	clear(w.vector)
	w.vector = w.vector[:0]
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// armWrite gives the client WriteTimeout from now to take some bytes, or up to a
// quarter more: the deadline is not moved for every answer.
func (c *Conn) armWrite() {
	now, timeout := time.Now(), c.server.options.WriteTimeout
	c.touch(now)
	if c.writeBy.Sub(now) < timeout {
		c.writeBy = now.Add(timeout + timeout/4)
		c.socket.SetWriteDeadline(c.writeBy)
	}
}
