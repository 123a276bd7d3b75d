package metrics_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/metrics"
	"github.com/watermill-inbox/inbox/sqlite"
)

// A service exposes what its inbox does and what waits in its queue.
func Example() {
	folder, err := os.MkdirTemp("", "inbox")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "example.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	check(err)
	defer func() { _ = db.Close() }()
	pool, schema := wsql.BeginnerFromStdSQL(db), sqlite.Schema{}

	registry := prometheus.NewRegistry()
	observer, err := metrics.NewObserver(registry, metrics.ObserverConfig{Consumers: []string{"billing"}})
	check(err)
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: schema, Consumer: "mail", AutoInitializeSchema: true}, nil)
	check(err)
	store, err := deferred.NewStore(pool, schema, deferred.Pending, nil)
	check(err)
	backlog, err := metrics.NewBacklog(store, metrics.BacklogConfig{})
	check(err)
	defer func() { _ = backlog.Close() }()
	registry.MustRegister(backlog)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	// A router with the inbox. Three of the four messages have the same id.
	box, err := inbox.New(pool, inbox.Config{Schema: schema, Observer: observer, AutoInitializeSchema: true}, nil)
	check(err)
	orders := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddMiddleware(box.Middleware)
	router.AddConsumerHandler("billing", "orders", orders, func(*message.Message) error { return nil })
	go func() { check(router.Run(context.Background())) }()
	<-router.Running()
	defer func() { _ = router.Close() }()
	for _, id := range []string{"order-1", "order-1", "order-2", "order-1"} {
		check(orders.Publish("orders", message.NewMessage(id, []byte("{}"))))
	}

	// Nobody runs the consumer mail yet.
	check(receiver.Publish("orders", message.NewMessage("order-1", []byte("{}")), message.NewMessage("order-2", []byte("{}"))))

	response, err := http.Get(server.URL)
	check(err)
	defer func() { _ = response.Body.Close() }()
	shown := regexp.MustCompile(`inbox_(deliveries_total|mismatches_total|in_flight|backlog_messages|backlog_up){.*`)
	var scrape strings.Builder
	check(response.Write(&scrape))
	fmt.Println(strings.Join(shown.FindAllString(scrape.String(), -1), "\n"))

	// Output:
	// inbox_backlog_messages{consumer="mail",queue="pending",state="claimed"} 0
	// inbox_backlog_messages{consumer="mail",queue="pending",state="dead"} 0
	// inbox_backlog_messages{consumer="mail",queue="pending",state="pending"} 2
	// inbox_backlog_messages{consumer="mail",queue="pending",state="stripped"} 0
	// inbox_backlog_messages{consumer="mail",queue="pending",state="suspect"} 0
	// inbox_backlog_messages{consumer="mail",queue="pending",state="waiting"} 0
	// inbox_backlog_up{queue="pending"} 1
	// inbox_deliveries_total{consumer="billing",outcome="duplicate"} 2
	// inbox_deliveries_total{consumer="billing",outcome="failed"} 0
	// inbox_deliveries_total{consumer="billing",outcome="processed"} 2
	// inbox_in_flight{consumer="billing"} 0
	// inbox_mismatches_total{consumer="billing"} 0
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
