package transport

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portOwner names the process that listens on a port, "" when that cannot be
// told: other users' processes do not show their sockets.
func portOwner(address string) string {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listening(table, uint16(port), sockets)
	}
	if len(sockets) == 0 {
		return ""
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // its only error is a bad pattern
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && sockets[target] {
			return processName(filepath.Dir(filepath.Dir(descriptor)))
		}
	}
	return ""
}

// listening adds what the descriptors of sockets that listen on port are links
// to. A line of the table is
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
//	0: 0100007F:2384 00000000:0000 0A …
func listening(table string, port uint16, sockets map[string]bool) {
	const stateListen = "0A"
	f, err := os.Open(table)
	if err != nil {
		return
	}
	defer f.Close()
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == stateListen && strings.HasSuffix(fields[1], suffix) {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
}

// processName is "name, pid 12" for a process's directory below /proc.
func processName(dir string) string {
	pid := filepath.Base(dir)
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return "the process with pid " + pid
	}
	return fmt.Sprintf("%s, pid %s", strings.TrimSpace(string(name)), pid)
}
