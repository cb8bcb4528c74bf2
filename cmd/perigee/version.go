package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionReport is what `perigee version` says.
type versionReport struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the compiler",
		Args:  arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			v := readVersion()
			if out.json {
				return out.print(v)
			}
			_, err = fmt.Fprintf(out.w, "perigee %s (commit %s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
			return err
		},
	}
}

// readVersion asks the build information the compiler leaves in the binary, so
// that `go install …@version` needs no linker flags.
func readVersion() versionReport {
	v := versionReport{Version: "devel", Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// softwareVersion is the version in the form ApiVersions allows: letters, digits,
// dots and dashes.
func softwareVersion() string {
	version := []byte(readVersion().Version)
	for i, b := range version {
		alphanumeric := '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
		if !alphanumeric && b != '.' && b != '-' {
			version[i] = '-'
		}
	}
	return string(version)
}
