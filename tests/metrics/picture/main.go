// Picture draws the panels of the dashboard from a real run: a service on PostgreSQL works for a while, Prometheus scrapes it, and the expressions of
// deploy/grafana/inbox.json are asked of Prometheus. It needs the program prometheus, of Debian's package of that name for instance.
//
//	go run ./tests/metrics/picture -dashboard deploy/grafana/inbox.json -out docs/dashboard.svg
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	lab "github.com/watermill-inbox/inbox/tests/metrics"
)

func main() {
	dashboard := flag.String("dashboard", "deploy/grafana/inbox.json", "the dashboard to draw")
	out := flag.String("out", "docs/dashboard.svg", "the file to write")
	duration := flag.Duration("duration", 2*time.Minute, "how long the service works")
	flag.Parse()
	if err := draw(*dashboard, *out, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func draw(file, out string, duration time.Duration) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var dashboard lab.Dashboard
	if err := json.Unmarshal(content, &dashboard); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	service, clean, err := newWork()
	if err != nil {
		return err
	}
	defer clean()
	prometheus, stop, err := startPrometheus(service)
	if err != nil {
		return err
	}
	defer stop()

	start := time.Now()
	if err := service.work(duration); err != nil {
		return err
	}
	p := picture{prometheus: prometheus, start: start.Add(5 * time.Second), end: time.Now()}
	svg, err := p.draw(dashboard)
	if err != nil {
		return err
	}
	return os.WriteFile(out, svg, 0o644)
}

// startPrometheus serves the metrics of the service and runs a Prometheus that scrapes them every second. It returns Prometheus's address.
func startPrometheus(service *work) (address string, stop func(), err error) {
	exporter, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(service.Registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(exporter) }()

	folder, err := os.MkdirTemp("", "inbox-picture")
	if err != nil {
		return "", nil, err
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: shop, static_configs: [{targets: ['%s']}]}]\n", exporter.Addr())
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		return "", nil, err
	}
	if address, err = freeAddress(); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, "prometheus", "--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address, "--log.level=error")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		cancel()
		return "", nil, fmt.Errorf("start prometheus: %w", err)
	}
	stop = func() {
		cancel()
		_ = command.Wait()
		_ = server.Close()
		_ = os.RemoveAll(folder)
	}
	if err := ready("http://" + address + "/-/ready"); err != nil {
		stop()
		return "", nil, err
	}
	return address, stop, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

func ready(address string) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		response, err := http.Get(address)
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	return errors.New("prometheus does not become ready")
}
