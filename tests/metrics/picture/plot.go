package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The margins of a plot in its panel.
const left, right, top, bottom = 52, 10, 28, 34

// scale is the greatest value on the axis, a round number.
func scale(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, step := range []float64{1, 1.5, 2, 3, 4, 6, 8, 10} {
		if most <= step*power {
			return step * power
		}
	}
	return most
}

// axes draws the frame of a plot and returns what places a value.
func (p *picture) axes(most float64, w, h int, unit string) func(n int, value float64) string {
	most = scale(most)
	width, height := float64(w-left-right), float64(h-top-bottom)
	for _, part := range []float64{0, .5, 1} {
		y := float64(top) + height*(1-part)
		fmt.Fprintf(&p.svg, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e5e5e5"/><text x="%d" y="%.1f" text-anchor="end" fill="#777">%s</text>`,
			left, w-right, y, y, left-5, y+4, html.EscapeString(format(most*part, unit)))
	}
	return func(n int, value float64) string {
		return fmt.Sprintf("%.1f,%.1f", float64(left)+width*float64(n)/points, float64(top)+height*(1-value/most))
	}
}

func (p *picture) lines(all []series, w, h int, unit string) {
	most := 0.0
	for _, line := range all {
		for _, v := range line.values {
			if !math.IsNaN(v) {
				most = max(most, v)
			}
		}
	}
	place := p.axes(most, w, h, unit)
	for n, line := range all {
		var path strings.Builder
		pen := "M"
		for i, v := range line.values {
			if math.IsNaN(v) {
				pen = "M"
				continue
			}
			path.WriteString(pen + place(i, v))
			pen = "L"
		}
		fmt.Fprintf(&p.svg, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), colors[n%len(colors)])
	}
}

// areas draws lines on top of each other.
func (p *picture) areas(all []series, w, h int, unit string) {
	sums := make([][]float64, len(all)+1)
	sums[0] = make([]float64, points+1)
	most := 0.0
	for n, line := range all {
		sums[n+1] = make([]float64, points+1)
		for i, v := range line.values {
			if math.IsNaN(v) {
				v = 0
			}
			sums[n+1][i] = sums[n][i] + v
			most = max(most, sums[n+1][i])
		}
	}
	place := p.axes(most, w, h, unit)
	for n := range all {
		path := make([]string, 0, 2*points+2)
		for i := range points + 1 {
			path = append(path, place(i, sums[n+1][i]))
		}
		for i := points; i >= 0; i-- {
			path = append(path, place(i, sums[n][i]))
		}
		fmt.Fprintf(&p.svg, `<polygon points="%s" fill="%s" fill-opacity="0.6"/>`, strings.Join(path, " "), colors[n%len(colors)])
	}
}

// legend names the lines, without those that are zero all the time if there are others.
func (p *picture) legend(all []series, w, h int) {
	x, y := left, h-20
	quiet := slices.ContainsFunc(all, series.moves)
	for n, line := range all {
		if quiet && !line.moves() {
			continue
		}
		width := 20 + 6*len(line.name)
		if x+width > w && x > left {
			x, y = left, y+14
		}
		fmt.Fprintf(&p.svg, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d">%s</text>`, x, y, colors[n%len(colors)], x+14, y+5, html.EscapeString(line.name))
		x += width
	}
}

func (s series) moves() bool {
	return slices.ContainsFunc(s.values, func(v float64) bool { return v > 0 })
}

// format writes a value with its unit, as Grafana does.
func format(v float64, unit string) string {
	number := func(v float64) string {
		if v >= 1000 {
			return fmt.Sprintf("%.3g k", v/1000)
		}
		return fmt.Sprintf("%.3g", v)
	}
	switch {
	case math.IsNaN(v):
		return "–"
	case unit == "ops":
		return number(v) + "/s"
	case unit != "s":
		return number(v)
	case v == 0:
		return "0"
	case v < 1:
		return number(v*1000) + " ms"
	case v < 120:
		return number(v) + " s"
	case v < 7200:
		return number(v/60) + " min"
	default:
		return number(v/3600) + " h"
	}
}
