package vfs

import "fmt"

// CorruptionError is the one mark of damaged bytes in the whole engine: something
// that was durable does not read back as it was written.
type CorruptionError struct {
	File   string // relative to the data directory
	Offset int64  // bytes from the start of the file
	Reason string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("corrupt %s at byte %d: %s", e.File, e.Offset, e.Reason)
}

// LockedError says that another process holds the lock.
type LockedError struct {
	Name   string // the lock file
	Holder string // what its holder wrote into it: a process id, or "" when unreadable
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return "lock " + e.Name + ": held by another process"
	}
	return "lock " + e.Name + ": held by process " + e.Holder
}

// TooLargeError says that a file read in one piece is longer than its format
// allows.
type TooLargeError struct {
	Name        string
	Size, Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("read %s: %d bytes, at most %d expected", e.Name, e.Size, e.Limit)
}
