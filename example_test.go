package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
)

// openDatabase makes a SQLite file with a table of stock. With another database only this function and the Schema change.
func openDatabase() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "inbox-example")
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

// A Router with the inbox as its middleware: the message is delivered twice, its effect is committed once.
func Example() {
	db, remove := openDatabase()
	defer remove()

	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:               sqlite.Schema{},
		AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	orders := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddMiddleware(in.Middleware)
	router.AddConsumerHandler("reserve-stock", "orders", orders, inbox.ConsumeStdTx(func(msg *message.Message, tx *sql.Tx) error {
		_, err := tx.ExecContext(msg.Context(), "UPDATE stock SET units = units - 1 WHERE item = ?", string(msg.Payload))
		return err
	}))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	for range 2 {
		msg := message.NewMessage("evt-42-created", []byte("lamp"))
		if err := orders.Publish("orders", msg); err != nil {
			log.Fatal(err)
		}
	}
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}

	fmt.Println("units left:", units(db))
	// Output: units left: 9
}

// Without a Router: the caller acks after nil and nacks after an error.
func ExampleInbox_Process() {
	db, remove := openDatabase()
	defer remove()
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:               sqlite.Schema{},
		Consumer:             "reserve-stock",
		AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		msg := message.NewMessage("evt-42-created", []byte("lamp"))
		outcome, err := in.Process(msg, func(ctx context.Context) error {
			tx, _ := inbox.StdTxFromContext(ctx)
			_, err := tx.ExecContext(ctx, "UPDATE stock SET units = units - 1 WHERE item = 'lamp'")
			return err
		})
		fmt.Println(outcome, err, units(db))
	}
	// Output:
	// processed <nil> 9
	// duplicate <nil> 9
}

// A failed handler leaves neither its effect nor the identity, so the redelivery runs it again.
func ExampleInbox_Middleware_failure() {
	db, remove := openDatabase()
	defer remove()
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: sqlite.Schema{}, Consumer: "reserve-stock", AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}

	attempts := 0
	handler := in.Middleware(inbox.HandleStdTx(func(msg *message.Message, tx *sql.Tx) ([]*message.Message, error) {
		if _, err := tx.ExecContext(msg.Context(), "UPDATE stock SET units = units - 1 WHERE item = 'lamp'"); err != nil {
			return nil, err
		}
		if attempts++; attempts == 1 {
			return nil, errors.New("price service is down")
		}
		return nil, nil
	}))

	for range 3 {
		_, err := handler(message.NewMessage("evt-42-created", []byte("lamp")))
		fmt.Println(err, units(db))
	}
	// Output:
	// price service is down 10
	// <nil> 9
	// <nil> 9
}

// The messages that a handler returns, and those published through Publisher, are committed with its effect. A wsql.Subscriber and a forwarder
// relay them to the broker.
func ExampleForwarderOutbox() {
	db, remove := openDatabase()
	defer remove()

	// The outbox table must exist before the first message: no table is created inside a message's transaction.
	outboxSchema := sqlite.OutboxSchema{}
	relay, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		SchemaAdapter:  outboxSchema,
		OffsetsAdapter: sqlite.OutboxOffsetsAdapter{},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := relay.SubscribeInitialize("outbox"); err != nil {
		log.Fatal(err)
	}

	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:               sqlite.Schema{},
		Consumer:             "reserve-stock",
		AutoInitializeSchema: true,
		Outbox:               inbox.ForwarderOutbox(wsql.PublisherConfig{SchemaAdapter: outboxSchema}, forwarder.PublisherConfig{ForwarderTopic: "outbox"}, nil),
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		_, err := in.Process(message.NewMessage("evt-42-created", []byte("lamp")), func(ctx context.Context) error {
			reserved := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(`{"item":"lamp"}`))
			return in.Publisher().Publish("stock-reserved", reserved)
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	var outgoing int
	if err := db.QueryRow("SELECT count(*) FROM watermill_outbox").Scan(&outgoing); err != nil {
		log.Fatal(err)
	}
	fmt.Println("outgoing messages:", outgoing)
	// Output: outgoing messages: 1
}

// The same id with other content is not a duplicate.
func ExampleMismatchError() {
	db, remove := openDatabase()
	defer remove()
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: sqlite.Schema{}, Consumer: "reserve-stock", AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for _, payload := range []string{"lamp", "sofa"} {
		_, err := in.Process(message.NewMessage("evt-42-created", []byte(payload)), func(context.Context) error { return nil })

		var mismatch *inbox.MismatchError
		fmt.Println(errors.As(err, &mismatch), inbox.IsPoison(err))
	}
	// Output:
	// false false
	// true true
}

// Ids that are unique only per producer get the producer as a namespace.
func ExampleWithProducerFromMetadata() {
	identity := inbox.WithProducerFromMetadata("source", inbox.FromMetadata("event_id"))

	msg := message.NewMessage(watermill.NewUUID(), nil)
	msg.Metadata.Set("source", "shop")
	msg.Metadata.Set("event_id", "42")
	fmt.Println(identity(msg))
	// Output: {shop 42} <nil>
}

// The recommended order of middlewares: what may succeed later is retried and then nacked, what never can goes to the poison queue.
func ExampleIsPoison() {
	db, remove := openDatabase()
	defer remove()
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: sqlite.Schema{}, AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}

	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, nil)
	poison, err := middleware.PoisonQueueWithFilter(broker, "poison", inbox.IsPoison)
	if err != nil {
		log.Fatal(err)
	}
	retry := middleware.Retry{
		MaxRetries:          3,
		ShouldRetry:         func(params middleware.RetryParams) bool { return inbox.IsRetryable(params.Err) },
		ResetContextOnRetry: true,
	}

	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddMiddleware(poison, retry.Middleware, middleware.Recoverer, in.Middleware)
	router.AddConsumerHandler("reserve-stock", "orders", broker, func(msg *message.Message) error {
		return errors.New("unknown item")
	})
	dead, err := broker.Subscribe(context.Background(), "poison")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	if err := broker.Publish("orders", message.NewMessage("evt-42-created", []byte("unicorn"))); err != nil {
		log.Fatal(err)
	}
	msg := <-dead
	msg.Ack()
	fmt.Println(msg.UUID, msg.Metadata.Get(middleware.ReasonForPoisonedKey))
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: evt-42-created unknown item
}

// A system that the transaction cannot cover gets a key that is the same for every delivery of one message.
func ExampleIdempotencyKey() {
	db, remove := openDatabase()
	defer remove()
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: sqlite.Schema{}, Consumer: "charge-card", AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = in.Process(message.NewMessage("evt-42-created", nil), func(ctx context.Context) error {
		key, ok := inbox.IdempotencyKey(ctx)
		fmt.Println(len(key), ok)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 64 true
}
