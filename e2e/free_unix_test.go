//go:build unix

package e2e

import (
	"syscall"
	"testing"
)

// freeBytes is what may still be written to the file system of a directory.
func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
