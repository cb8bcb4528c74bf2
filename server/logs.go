package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/server/config"
)

// Logs is where the log lines of a broker process go: to stderr or a file, as
// text for people on a terminal and one JSON object a line elsewhere. The level
// can change and the file be opened anew while lines are written. All methods
// may be called from any goroutine.
type Logs struct {
	// Logger writes the lines.
	Logger zerolog.Logger

	level atomic.Int32 // a zerolog.Level
	file  *logFile     // nil: lines go to stderr
}

// OpenLogs opens the log the settings describe. Close releases the file.
func OpenLogs(c config.Log, stderr io.Writer) (*Logs, error) {
	l := &Logs{}
	l.SetLevel(c.Level)
	to := stderr
	if c.File != "" {
		l.file = &logFile{path: c.File}
		if err := l.file.reopen(); err != nil {
			return nil, err
		}
		to = l.file
	}
	text := c.Format == "text"
	if terminal, ok := to.(*os.File); ok && c.Format == "auto" {
		text = isatty.IsTerminal(terminal.Fd())
	}
	if text {
		to = zerolog.ConsoleWriter{Out: to, TimeFormat: logTime, TimeLocation: time.UTC}
	}
	l.Logger = zerolog.New(to).Level(zerolog.TraceLevel).Sample(l).Hook(stamp{})
	return l, nil
}

// logTime is RFC 3339 with milliseconds; lines are in UTC, so that those of
// several machines can be laid side by side.
const logTime = "2006-01-02T15:04:05.000Z07:00"

// stamp puts the time on a line.
type stamp struct{}

// Run implements zerolog.Hook.
func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format(logTime))
}

// SetLevel sets the least important lines that are written. A name that is not
// one of zerolog's means info.
func (l *Logs) SetLevel(name string) {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		level = zerolog.InfoLevel
	}
	l.level.Store(int32(level))
}

// Sample implements zerolog.Sampler, which is asked before a line is put
// together.
func (l *Logs) Sample(level zerolog.Level) bool { return int32(level) >= l.level.Load() }

// Reopen opens the log file anew, after somebody has moved the old one away.
// When that fails lines still go to the old one.
func (l *Logs) Reopen() error {
	if l.file == nil {
		return nil
	}
	return l.file.reopen()
}

// Close closes the log file.
func (l *Logs) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.close()
}

// logFile is a file that can be replaced below its writer.
type logFile struct {
	path string
	mu   struct {
		sync.Mutex
		open *os.File // nil before the first reopen and after close
	}
}

func (f *logFile) reopen() error {
	fresh, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	f.mu.Lock()
	old := f.mu.open
	f.mu.open = fresh
	f.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

// Write implements io.Writer.
func (f *logFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.open == nil {
		return 0, errors.New("the log file is closed")
	}
	return f.mu.open.Write(line)
}

func (f *logFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.open == nil {
		return nil
	}
	err := f.mu.open.Close()
	f.mu.open = nil
	return err
}
