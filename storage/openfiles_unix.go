//go:build unix

package storage

import "syscall"

// openFilesDefault leaves half of the process's descriptors to sockets and the
// journal.
func openFilesDefault() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 512
	}
	return int(min(max(uint64(limit.Cur)/2, 64), 1<<16))
}
