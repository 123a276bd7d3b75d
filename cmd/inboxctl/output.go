package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// table is what a command prints. The first row is the head.
type table struct {
	rows [][]string
	red  map[int]bool // rows that need somebody's attention
}

func newTable(head ...string) *table { return &table{rows: [][]string{head}, red: map[int]bool{}} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// alarm marks the last row.
func (t *table) alarm() { t.red[len(t.rows)-1] = true }

const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// write aligns the columns. Lines are painted as a whole, after that, because escape sequences would count as width.
func (t *table) write(to io.Writer, colours bool) error {
	var aligned bytes.Buffer
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var out bytes.Buffer
	for n, line := range strings.Split(strings.TrimSuffix(aligned.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		switch {
		case colours && n == 0:
			line = bold + line + plain
		case colours && t.red[n]:
			line = red + line + plain
		}
		fmt.Fprintln(&out, line)
	}
	_, err := to.Write(out.Bytes())
	return err
}

// print writes a result to standard output, in the form that --output names.
func (a *app) print(document any, asTable func() error) error {
	var err error
	if a.json() {
		encoder := json.NewEncoder(a.out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(document)
	} else {
		err = asTable()
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (a *app) printTable(t *table) error { return t.write(a.out, a.colours(a.out)) }

func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colours are for terminals that know them, unless the user wants none (no-color.org).
func (a *app) colours(f *os.File) bool {
	return isTerminal(f) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// timeText is RFC 3339 in UTC to the second.
func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ageText is an age to the second.
func ageText(age time.Duration) string {
	if age == 0 {
		return "-"
	}
	days := age / (24 * time.Hour)
	rest := (age % (24 * time.Hour)).Truncate(time.Second)
	if days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(rest.Hours()))
	}
	return rest.String()
}
