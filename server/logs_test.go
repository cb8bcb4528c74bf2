package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/server/config"
)

func openLogs(t *testing.T, c config.Log) (*Logs, *bytes.Buffer) {
	t.Helper()
	stderr := new(bytes.Buffer)
	l, err := OpenLogs(c, stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, stderr
}

func TestTheLevelChangesWhileLinesAreWritten(t *testing.T) {
	l, stderr := openLogs(t, config.Log{Level: "warn"})
	say := func() { l.Logger.Info().Msg("quiet"); l.Logger.Warn().Msg("loud") }
	say()
	if got := stderr.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("at warn: %s", got)
	}
	stderr.Reset()
	l.SetLevel("debug")
	say()
	if got := stderr.String(); !strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("at debug: %s", got)
	}
}

func TestLinesAreInUTC(t *testing.T) {
	l, stderr := openLogs(t, config.Log{Level: "info", Format: "json"})
	l.Logger.Info().Msg("hello")
	var line struct{ Time string }
	if err := json.Unmarshal(stderr.Bytes(), &line); err != nil || !strings.HasSuffix(line.Time, "Z") {
		t.Fatalf("%s: %v", stderr, err)
	}
	if at, err := time.Parse(time.RFC3339, line.Time); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("time %s, %v", line.Time, err)
	}
	text, stderr := openLogs(t, config.Log{Level: "info", Format: "text"})
	text.Logger.Info().Msg("hello")
	if got := stderr.String(); !strings.Contains(got, "hello") || strings.Contains(got, "{") {
		t.Errorf("text: %s", got)
	}
}

// A file that was moved away is written to until Reopen, then a new one is.
func TestTheLogFileIsOpenedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perigee.log")
	l, stderr := openLogs(t, config.Log{Level: "info", File: path})
	l.Logger.Info().Msg("first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Logger.Info().Msg("second")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Logger.Info().Msg("third")
	for file, want := range map[string][]string{path + ".1": {"first", "second"}, path: {"third"}} {
		text, err := os.ReadFile(file)
		if err != nil || bytes.Count(text, []byte("\n")) != len(want) {
			t.Errorf("%s: %v: %s", file, err, text)
		}
		for _, w := range want {
			if !bytes.Contains(text, []byte(w)) {
				t.Errorf("%s lacks %q: %s", file, w, text)
			}
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr got %s", stderr)
	}
	if _, err := OpenLogs(config.Log{File: filepath.Join(path, "no", "directory")}, stderr); err == nil || !strings.HasPrefix(err.Error(), "open log file: ") {
		t.Errorf("%v", err)
	}
}

func TestALineThatRepeatsIsCountedInsteadOfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(bytes.Buffer)
		log := zerolog.New(out)
		var r repeats
		for range 100 {
			r.rarely("refused", log.Warn()).Msg("refused")
		}
		r.rarely("other", log.Warn()).Msg("other")
		if n := strings.Count(out.String(), "refused"); n != repeatLimit || !strings.Contains(out.String(), "other") {
			t.Fatalf("%d lines in the first minute: %s", n, out)
		}
		out.Reset()
		time.Sleep(repeatWindow)
		r.rarely("refused", log.Warn()).Msg("refused")
		if !strings.Contains(out.String(), `"not_shown":95`) {
			t.Errorf("a minute later: %s", out)
		}
	})
}
