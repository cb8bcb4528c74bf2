//go:build !linux

package vfs

import (
	"math"
	"os"
)

// Systems without pwritev write buffer by buffer.
func pwritev(f *os.File, bufs [][]byte, off int64) (int, error) { return f.WriteAt(bufs[0], off) }

const directFlag = 0

func aligns(*os.File) bool { return false }

// datasync is the full fsync: the standard library offers nothing weaker here.
func datasync(f *os.File) error { return f.Sync() }

func startWriteback(*os.File, int64, int64) {}

func reserve(*os.File, int64, int64) error { return nil }

// volume is unknown, which must not look like a full disk.
func volume(string) (free, total int64, err error) { return math.MaxInt64, math.MaxInt64, nil }
