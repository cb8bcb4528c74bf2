// Package segment is one log file of a partition and its indexes, as a unit.
package segment

import "fmt"

// CorruptionError says which bytes cannot be what was written. It is the one
// mark for corruption in the whole engine.
type CorruptionError struct {
	File   string
	Offset int64 // byte position in File
	Reason string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("corrupt at byte %d of %s: %s", e.Offset, e.File, e.Reason)
}
