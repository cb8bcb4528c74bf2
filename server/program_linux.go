package server

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropStartPages takes the program's own pages out of this process's memory map.
// Initialisation walks over nearly all of code and tables once; a broker that then
// has little to do needs a fraction of them, and pages that nobody maps are the
// first the system can use otherwise. What is needed again comes back from the page
// cache with a minor fault for each 64 KiB.
//
// Only mappings that cannot be written and of which every page is the file's are
// touched: a relocated table, or a breakpoint of a debugger, exists nowhere else.
func dropStartPages() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	var start, end uintptr // of a mapping that qualifies so far
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var from, to uintptr
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); n == 3 {
			start, end = from, to
			if !strings.HasSuffix(line, " "+program) || strings.Contains(perms, "w") {
				end = start
			}
			continue
		}
		var anonymous int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &anonymous); n == 1 && anonymous == 0 && end > start {
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED); errno != 0 {
				return os.NewSyscallError("madvise", errno)
			}
		}
	}
	return lines.Err()
}
