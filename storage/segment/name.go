package segment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/perigeemq/perigee/storage/model"
)

// ID names a segment within its partition.
type ID struct {
	Base       model.Offset
	Generation uint32 // 0 for what appends wrote, counts compactions
}

const digits = 20

// LogName is the name of the log file.
func (id ID) LogName() string { return id.name(".log") }

// IndexName is the name of the index file.
func (id ID) IndexName() string { return id.name(".index") }

func (id ID) name(ext string) string {
	if id.Generation == 0 {
		return fmt.Sprintf("%0*d%s", digits, id.Base, ext)
	}
	return fmt.Sprintf("%0*d%s.%d", digits, id.Base, ext, id.Generation)
}

// ParseName reads the names LogName and IndexName make; false for any other.
func ParseName(name string) (id ID, isLog, ok bool) {
	if len(name) < digits {
		return ID{}, false, false
	}
	base, err := strconv.ParseUint(name[:digits], 10, 63)
	if err != nil {
		return ID{}, false, false
	}
	ext, generation, hasGeneration := strings.Cut(name[digits+min(1, len(name)-digits):], ".")
	id.Base = model.Offset(base)
	if hasGeneration {
		g, err := strconv.ParseUint(generation, 10, 32)
		if err != nil || g == 0 {
			return ID{}, false, false
		}
		id.Generation = uint32(g)
	}
	isLog = ext == "log"
	// Printing it again refuses every other spelling of the same numbers.
	return id, isLog, name == id.LogName() || name == id.IndexName()
}
