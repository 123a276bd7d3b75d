package main

import (
	"fmt"

	"github.com/schollz/progressbar/v3"
)

// progress is a bar on standard error, where that is a terminal.
type progress struct {
	app *app
	bar *progressbar.ProgressBar // nil: no terminal
}

func (a *app) progress(what string, total int64) *progress {
	if !isTerminal(a.err) {
		return &progress{app: a}
	}
	return &progress{a, progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetRenderBlankState(true),
	)}
}

func (p *progress) add(n int64) {
	if p.bar != nil {
		_ = p.bar.Add64(n)
	}
}

// finish fills the bar, whose total was an estimate.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// end leaves the bar where it is, for what is printed next.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprintln(p.app.err)
	}
}
