package main

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	lab "github.com/watermill-inbox/inbox/tests/metrics"
)

const (
	columnWidth, rowHeight = 52, 30 // of Grafana's grid
	gap                    = 8
	header                 = 40
)

var colors = []string{"#3274d9", "#e0b400", "#37872d", "#c4162a", "#8f3bb8", "#e0752d", "#1f9bb5", "#777777", "#a15c00", "#5794f2"}

// picture asks Prometheus and draws.
type picture struct {
	prometheus string
	start, end time.Time
	svg        strings.Builder
}

// series is one line.
type series struct {
	name   string
	values []float64 // NaN: none
}

func (p *picture) draw(dashboard lab.Dashboard) ([]byte, error) {
	height := 0
	for _, panel := range dashboard.Panels {
		height = max(height, panel.GridPos.Y+panel.GridPos.H)
	}
	width := 24*columnWidth + 2*gap
	fmt.Fprintf(&p.svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#222">`+"\n", width, header+height*rowHeight+gap)
	fmt.Fprintf(&p.svg, `<rect width="100%%" height="100%%" fill="#f4f5f5"/><text x="%d" y="26" font-size="18">%s</text>`+"\n", 2*gap, html.EscapeString(dashboard.Title))
	for _, panel := range dashboard.Panels {
		if err := p.panel(panel); err != nil {
			return nil, fmt.Errorf("panel %s: %w", panel.Title, err)
		}
	}
	p.svg.WriteString("</svg>\n")
	return []byte(p.svg.String()), nil
}

func (p *picture) panel(panel lab.Panel) error {
	x, y := gap+panel.GridPos.X*columnWidth, header+panel.GridPos.Y*rowHeight
	w, h := panel.GridPos.W*columnWidth-gap, panel.GridPos.H*rowHeight-gap
	if panel.Type == "row" {
		fmt.Fprintf(&p.svg, `<text x="%d" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", x, y+18, html.EscapeString(panel.Title))
		return nil
	}
	fmt.Fprintf(&p.svg, `<g transform="translate(%d,%d)"><rect width="%d" height="%d" fill="#fff" stroke="#ddd"/><text x="8" y="17" font-weight="bold">%s</text>`+"\n",
		x, y, w, h, html.EscapeString(panel.Title))
	var lines []series
	for _, target := range panel.Targets {
		found, err := p.ask(target)
		if err != nil {
			return err
		}
		lines = append(lines, found...)
	}
	unit := panel.FieldConfig.Defaults.Unit
	switch {
	case len(lines) == 0:
		fmt.Fprintf(&p.svg, `<text x="%d" y="%d" fill="#999">no data</text>`, w/2-20, h/2)
	case panel.Type == "stat":
		fmt.Fprintf(&p.svg, `<text x="%d" y="%d" font-size="40" text-anchor="middle">%s</text>`, w/2, h/2+20, format(lines[0].last(), unit))
	default:
		if panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
			p.areas(lines, w, h, unit)
		} else {
			p.lines(lines, w, h, unit)
		}
		p.legend(lines, w, h)
	}
	p.svg.WriteString("</g>\n")
	return nil
}

// points is into how many steps the time is divided.
const points = 120

// ask asks for a range of values.
func (p *picture) ask(target lab.Target) ([]series, error) {
	step := p.end.Sub(p.start) / points
	response, err := http.PostForm("http://"+p.prometheus+"/api/v1/query_range", url.Values{
		"query": {lab.Variables(target.Expr, "10s", ".*")}, "start": {seconds(p.start)}, "end": {seconds(p.end)}, "step": {fmt.Sprint(step.Seconds())},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", target.Expr, answer.Error)
	}
	var found []series
	for _, result := range answer.Data.Result {
		line := series{name: legend(target.LegendFormat, result.Metric), values: slices.Repeat([]float64{math.NaN()}, points+1)}
		for _, value := range result.Values {
			at, _ := value[0].(float64)
			text, _ := value[1].(string)
			n := int(math.Round((at - float64(p.start.UnixMilli())/1000) / step.Seconds()))
			if parsed, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(parsed) && n >= 0 && n <= points {
				line.values[n] = parsed
			}
		}
		found = append(found, line)
	}
	slices.SortFunc(found, func(a, b series) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

var variable = regexp.MustCompile(`{{(\w+)}}`)

func legend(format string, labels map[string]string) string {
	return variable.ReplaceAllStringFunc(format, func(v string) string { return labels[strings.Trim(v, "{}")] })
}

func (s series) last() float64 {
	for _, v := range slices.Backward(s.values) {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}
