package server

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// The program runs on from the page cache, as often as its pages are dropped.
func TestTheProgramOutlivesItsPages(t *testing.T) {
	before := residentFilePages(t)
	for range 3 {
		if err := dropStartPages(); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	if after := residentFilePages(t); after >= before {
		t.Errorf("%d pages of files in memory, %d before", after, before)
	}
}

// residentFilePages is the third number of statm, see proc(5); 0 where there is none.
func residentFilePages(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[2])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
