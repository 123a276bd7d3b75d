package deferred_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/sqlite"
)

// openDatabase makes a SQLite file with a table of stock. With another database only this function and the Schema change.
func openDatabase() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "deferred-example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE stock (item TEXT PRIMARY KEY, units INTEGER); INSERT INTO stock VALUES ('lamp', 10)"); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func units(db *sql.DB) (n int) {
	if err := db.QueryRow("SELECT units FROM stock WHERE item = 'lamp'").Scan(&n); err != nil {
		log.Fatal(err)
	}
	return n
}

// takeLamp is a handler whose transaction is an argument.
func takeLamp(msg *message.Message, tx *sql.Tx) error {
	_, err := tx.ExecContext(msg.Context(), "UPDATE stock SET units = units - 1 WHERE item = ?", string(msg.Payload))
	return err
}

// reports tells how deliveries to an Inbox ended.
type reports chan inbox.DeliveryReport

func (r reports) ObserveDelivery(report inbox.DeliveryReport) { r <- report }

// One handler takes messages over from the broker, another one processes them. The broker's ack comes after the first. The inbox belongs
// to the second: as a middleware of the router it would refuse the first.
func Example() {
	db, remove := openDatabase()
	defer remove()
	pool, schema := wsql.BeginnerFromStdSQL(db), sqlite.Schema{}
	wakeup := &deferred.Wakeup{}

	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema: schema, Consumer: "reserve-stock", Wakeup: wakeup, AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: schema, Consumer: "reserve-stock", Wakeup: wakeup,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	processed := make(reports, 1)
	in, err := inbox.New(pool, inbox.Config{Schema: schema, Consumer: "reserve-stock", Observer: processed}, nil)
	if err != nil {
		log.Fatal(err)
	}

	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddHandler("receive-orders", "orders", broker, "orders", receiver, message.PassthroughHandler)
	router.AddConsumerHandler("reserve-stock", "orders", subscriber, inbox.ConsumeStdTx(takeLamp)).AddMiddleware(in.Middleware)
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	for range 2 { // returns when the message is durable
		if err := broker.Publish("orders", message.NewMessage("evt-42-created", []byte("lamp"))); err != nil {
			log.Fatal(err)
		}
	}
	report := <-processed
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}

	fmt.Println(report.Identity.ID, report.Outcome)
	fmt.Println("units left:", units(db))
	// Output:
	// evt-42-created processed
	// units left: 9
}

// An HTTP endpoint or any other source calls Receive, and answers by the outcomes. Nothing is processed yet.
func ExampleReceiver_Receive() {
	db, remove := openDatabase()
	defer remove()
	receiver, err := deferred.NewReceiver(wsql.BeginnerFromStdSQL(db), deferred.ReceiverConfig{
		Schema: sqlite.Schema{}, Consumer: "reserve-stock", AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for _, payload := range []string{"lamp", "lamp", "sofa"} {
		outcomes, err := receiver.Receive(context.Background(), "orders", message.NewMessage("evt-42-created", []byte(payload)))
		var mismatch *inbox.MismatchError
		fmt.Println(payload, outcomes, errors.As(err, &mismatch))
	}
	fmt.Println("units left:", units(db))
	// Output:
	// lamp [stored] false
	// lamp [already pending] false
	// sofa [mismatch] true
	// units left: 10
}

// A message that fails at every attempt is dead, until an operator has removed the cause and redrives it.
func ExampleStore_Redrive() {
	db, remove := openDatabase()
	defer remove()
	pool, schema := wsql.BeginnerFromStdSQL(db), sqlite.Schema{}
	ctx := context.Background()

	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: schema, Consumer: "reserve-stock", AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: schema, Consumer: "reserve-stock", MaxAttempts: 2, InitialBackoff: time.Millisecond, PollInterval: 10 * time.Millisecond,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := deferred.NewStore(pool, schema, deferred.Pending, nil)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(reports, 10)
	in, err := inbox.New(pool, inbox.Config{Schema: schema, Consumer: "reserve-stock", Observer: ended}, nil)
	if err != nil {
		log.Fatal(err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddConsumerHandler("reserve-stock", "orders", subscriber, inbox.ConsumeStdTx(func(msg *message.Message, tx *sql.Tx) error {
		var price int
		if err := tx.QueryRowContext(msg.Context(), "SELECT price FROM prices").Scan(&price); err != nil {
			return errors.New("no prices yet")
		}
		return takeLamp(msg, tx)
	})).AddMiddleware(in.Middleware)
	if err := receiver.Publish("orders", message.NewMessage("evt-42-created", []byte("lamp"))); err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	var dead []deferred.StoredMessage
	for len(dead) == 0 { // an operator, or an alert on Store.Count
		if dead, err = store.List(ctx, deferred.Filter{States: []deferred.State{deferred.StateDead}}); err != nil {
			log.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("%s: %s, %d attempts: %s\n", dead[0].Identity.ID, dead[0].State, dead[0].Attempts, dead[0].LastError)

	if _, err := db.Exec("CREATE TABLE prices (price INTEGER); INSERT INTO prices VALUES (20)"); err != nil {
		log.Fatal(err)
	}
	if err := store.Redrive(ctx, dead[0].Number); err != nil {
		log.Fatal(err)
	}
	for report := range ended {
		if report.Outcome == inbox.Processed {
			break
		}
	}
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	counts, err := store.Count(ctx)
	fmt.Println(counts, err)
	fmt.Println("units left:", units(db))
	// Output:
	// evt-42-created: dead, 2 attempts: no prices yet
	// [] <nil>
	// units left: 9
}

// The messages that a handler produces wait in the table of outgoing messages, committed with its effect, and are relayed to the broker by a Subscriber
// of that table and Watermill's forwarder.
func ExampleOutbox() {
	db, remove := openDatabase()
	defer remove()
	pool, schema := wsql.BeginnerFromStdSQL(db), sqlite.Schema{}

	wakeup := &deferred.Wakeup{} // the Inbox tells the relay when there is something to do
	outgoing, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: schema, Consumer: deferred.DefaultRelay, Queue: deferred.Outgoing,
		MaxAttempts: -1, // an outage of the broker makes no message dead
		Wakeup:      wakeup, AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	relay, err := forwarder.NewForwarder(outgoing, broker, watermill.NopLogger{}, forwarder.Config{
		ForwarderTopic: "outbox",
		Middlewares:    []message.HandlerMiddleware{deferred.RecordError}, // operators see why the broker refused a message
	})
	if err != nil {
		log.Fatal(err)
	}
	in, err := inbox.New(pool, inbox.Config{
		Schema: schema, Consumer: "reserve-stock", AutoInitializeSchema: true, Observer: wakeup,
		Outbox: deferred.Outbox(deferred.OutboxConfig{Schema: schema, ForwarderTopic: "outbox"}),
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	reserved, err := broker.Subscribe(context.Background(), "stock-reserved")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = relay.Run(context.Background()) }()
	<-relay.Running()

	for range 2 {
		outcome, err := in.Process(message.NewMessage("evt-42-created", []byte("lamp")), func(ctx context.Context) error {
			return in.Publisher().Publish("stock-reserved", message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(`{"item":"lamp"}`)))
		})
		fmt.Println(outcome, err)
	}
	msg := <-reserved
	fmt.Println(string(msg.Payload))
	msg.Ack()
	if err := relay.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// processed <nil>
	// duplicate <nil>
	// {"item":"lamp"}
}
