package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows how far a long verb is, on stderr, and only when a person looks
// on. Its methods may be called from several goroutines.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress counts to total units; -1 when the end is unknown.
func newProgress(stderr io.Writer, total int64, doing, unit string) progress {
	if !isTerminal(stderr) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription(doing),
		progressbar.OptionSetItsString(unit),
		progressbar.OptionShowIts(),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	)}
}

func (p progress) add(n int64) {
	if p.bar != nil {
		// Its error is that of writing to the terminal, which nobody could be told.
		_ = p.bar.Add64(n)
	}
}

func (p progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
