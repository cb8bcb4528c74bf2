package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// output prints a verb's results, in one of two forms.
type output struct {
	w      io.Writer
	errors io.Writer
	input  io.Reader
	json   bool
	failed bool // an item failed and has been reported
}

func (s *session) output(c *cobra.Command) (*output, error) {
	if s.format != "text" && s.format != "json" {
		return nil, usagef("--format %s: want text or json", s.format)
	}
	return &output{w: c.OutOrStdout(), errors: c.ErrOrStderr(), input: c.InOrStdin(), json: s.format == "json"}, nil
}

// print writes value as JSON, or the tables.
func (o *output) print(value any, tables ...table) error {
	if !o.json {
		return writeTables(o.w, tables)
	}
	encoder := json.NewEncoder(o.w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// item reports one failed item on one line and remembers that there was one.
func (o *output) item(name string, err error) {
	o.failed = true
	fmt.Fprintf(o.errors, "perigee: %s: %s\n", name, oneLine(err))
}

// end is a verb's last word: failed items make it fail.
func (o *output) end() error {
	if o.failed {
		return errReported
	}
	return nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// message is what JSON says about an item: nothing when it went well.
func message(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(err)
}

// withMessage adds the broker's own words to an error code.
func withMessage(err error, words string) error {
	if err == nil || words == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, words)
}

// table is aligned columns, for people and for awk: no boxes, two spaces.
type table struct {
	title  string // of a section; empty for a lone table
	header []string
	rows   [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
		if row[i] == "" {
			row[i] = "-" // an empty cell would shift awk's columns
		}
	}
	t.rows = append(t.rows, row)
}

func writeTables(w io.Writer, tables []table) error {
	for i, t := range tables {
		if t.title != "" {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, t.title)
		}
		columns := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		if len(t.header) > 0 {
			fmt.Fprintln(columns, strings.Join(t.header, "\t"))
		}
		for _, row := range t.rows {
			fmt.Fprintln(columns, strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// joined prints a list of numbers as [1,2,3].
func joined(numbers []int32) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(int(n))
	}
	return "[" + strings.Join(words, ",") + "]"
}

// isTerminal reports whether a person looks on.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks before something that cannot be undone. Without a person to ask,
// only --yes will do.
func (o *output) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(o.input) {
		return usagef("%s: add --yes to confirm", question)
	}
	fmt.Fprintf(o.errors, "%s [y/N] ", question)
	answer, err := bufio.NewReader(o.input).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("not confirmed, nothing done")
	}
	return nil
}
