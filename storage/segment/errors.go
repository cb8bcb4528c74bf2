package segment

import "github.com/perigeemq/perigee/storage/vfs"

// CorruptionError says which bytes of a log or index cannot be what was written.
type CorruptionError = vfs.CorruptionError
