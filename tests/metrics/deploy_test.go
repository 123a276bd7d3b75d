package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// unused are metrics that neither the dashboard nor an alert names, each for a reason.
var unused = map[string]string{}

// expression is a piece of PromQL in one of the files.
type expression struct{ where, text string }

const (
	dashboardFile = "../../deploy/grafana/inbox.json"
	alertsFile    = "../../deploy/prometheus/alerts.yml"
)

func dashboardExpressions(t *testing.T) (expressions []expression) {
	t.Helper()
	var dashboard Dashboard
	read(t, dashboardFile, json.Unmarshal, &dashboard)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions = append(expressions, expression{"panel " + panel.Title, target.Expr})
		}
	}
	return expressions
}

type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Annotations map[string]string
			Labels      map[string]string
		}
	}
}

func alerts(t *testing.T) (rules alertRules, expressions []expression) {
	t.Helper()
	read(t, alertsFile, yaml.Unmarshal, &rules)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			expressions = append(expressions, expression{"alert " + rule.Alert, rule.Expr})
		}
	}
	return rules, expressions
}

func read(t *testing.T, file string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, unmarshal(content, into), file)
}

// TestDeployNamesWhatIsExposed: every metric, label and value of a label that the dashboard and the alerts name is one that a service exposes after a few
// deliveries, and every metric that it exposes is shown.
func TestDeployNamesWhatIsExposed(t *testing.T) {
	d := open(t, "sqlite")
	s := newService(t, d)
	s.exercise(t, d)
	exposed := s.scrape(t)
	shown := map[string]bool{}
	_, expressions := alerts(t)
	expressions = append(expressions, dashboardExpressions(t)...)
	require.Greater(t, len(expressions), 30)
	for _, e := range expressions {
		text := Variables(e.text, "1m", ".+")
		parsed, err := metricsql.Parse(text)
		require.NoError(t, err, "%s: %s", e.where, e.text)
		var named []*dto.MetricFamily
		metricsql.VisitAll(parsed, func(part metricsql.Expr) {
			selector, ok := part.(*metricsql.MetricExpr)
			if !ok {
				return
			}
			family := exposed.named(selector)
			require.NotNil(t, family, "%s: nobody exposes a metric of %s", e.where, e.text)
			shown[family.GetName()] = true
			named = append(named, family)
			requireLabels(t, e, family, selector)
		})
		require.NotEmpty(t, named, e.where)
		for _, label := range grouping(parsed) {
			require.True(t, slices.Contains([]string{"le", "job", "instance"}, label) || slices.ContainsFunc(named, func(f *dto.MetricFamily) bool { return len(valuesOf(f, label)) > 0 }),
				"%s: no metric has the label %q", e.where, label)
		}
	}
	for name := range exposed {
		require.True(t, shown[name] || unused[name] != "", "%s is exposed and neither on the dashboard nor in an alert: add it, or a reason to unused", name)
	}
}

// named finds the metric of a selector. Those of a histogram have names of their own.
func (f families) named(selector *metricsql.MetricExpr) *dto.MetricFamily {
	name := selector.LabelFilterss[0][0].Value
	if family := f[name]; family != nil && family.GetType() != dto.MetricType_HISTOGRAM {
		return family
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if family := f[strings.TrimSuffix(name, suffix)]; strings.HasSuffix(name, suffix) && family.GetType() == dto.MetricType_HISTOGRAM {
			return family
		}
	}
	return nil
}

// requireLabels looks for a series that a selector selects, and for each of the alternatives in it.
func requireLabels(t *testing.T, e expression, family *dto.MetricFamily, selector *metricsql.MetricExpr) {
	t.Helper()
	for _, filter := range selector.LabelFilterss[0][1:] {
		values := valuesOf(family, filter.Label)
		require.NotEmpty(t, values, "%s: %s has no label %q", e.where, family.GetName(), filter.Label)
		for _, alternative := range strings.Split(filter.Value, "|") {
			matches, err := regexp.Compile("^(" + alternative + ")$")
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(values, matches.MatchString), "%s: %s is never %q, but one of %q", e.where, filter.Label, alternative, values)
		}
	}
}

// valuesOf returns the values of a label, besides those that a test cannot provoke everywhere.
func valuesOf(family *dto.MetricFamily, name string) (values []string) {
	for _, m := range family.GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == name {
				values = append(values, label.GetValue())
			}
		}
	}
	return values
}

// grouping returns the labels of all by and on.
func grouping(parsed metricsql.Expr) (labels []string) {
	metricsql.VisitAll(parsed, func(part metricsql.Expr) {
		switch part := part.(type) {
		case *metricsql.AggrFuncExpr:
			labels = append(labels, part.Modifier.Args...)
		case *metricsql.BinaryOpExpr:
			labels = append(labels, part.GroupModifier.Args...)
		}
	})
	return labels
}

// TestAlertsTellWhatToDo: each has a severity, a summary, a description and its place in the manual of operations.
func TestAlertsTellWhatToDo(t *testing.T) {
	rules, _ := alerts(t)
	seen := map[string]bool{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			require.False(t, seen[rule.Alert], "two alerts are named %s", rule.Alert)
			seen[rule.Alert] = true
			require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			require.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/operations.md#"+strings.ToLower(rule.Alert)), rule.Annotations["runbook_url"])
		}
	}
	require.Len(t, seen, 12)
}

// TestAlertsFire runs the unit tests of the alerts with Prometheus's own tool, where there is one.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("INBOX_TEST_ALL") == "1" {
		t.Fatal("promtool is not installed: it is part of Debian's package prometheus")
	}
	if err != nil {
		t.Skip("promtool is not installed: the alerts are parsed, but nobody sees them fire")
	}
	command := exec.Command(promtool, "test", "rules", "alerts_test.yml")
	command.Dir = filepath.Dir(alertsFile)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}
