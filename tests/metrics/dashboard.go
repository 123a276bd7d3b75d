package metrics

import "strings"

// Dashboard is what Grafana's JSON says about panels.
type Dashboard struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is a row or one of its panels.
type Panel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit   string `json:"unit"`
			Custom struct {
				Stacking struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
}

// Target is a line, or several of them, in a panel.
type Target struct {
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

// Variables fills in what Grafana does: the interval of rates, and a regular expression for the choices of the reader.
func Variables(expr, interval, choice string) string {
	return strings.NewReplacer("$__rate_interval", interval, "$consumer", choice, "$queue", choice).Replace(expr)
}
