package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
)

// timeLimit is far more than the story takes. It is there so that a mistake ends in an error and not in silence.
const timeLimit = 30 * time.Second

// run plays the story and fails if it ends otherwise than it should. The tests change the inbox's configuration to see it fail.
func run(w io.Writer, path string, change ...func(*inbox.Config)) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()

	db, cleanUp, err := createDatabase(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()

	s := &story{w: w, db: db, settled: make(chan delivery)}
	config := inboxConfig()
	config.Observer = s // that is how the story learns what the inbox decided
	for _, f := range change {
		f(&config)
	}
	reports, err := inbox.New(wsql.BeginnerFromStdSQL(db), config, logger)
	if err != nil {
		return err
	}

	requests := gochannel.NewGoChannel(gochannel.Config{}, logger)
	unreliable := ackLoser{Subscriber: requests, id: lostAck, settled: s.observe}
	router, err := newRouter(reports, unreliable, failOnce(failing, createReport))
	if err != nil {
		return err
	}

	// The relay may tick a message off once its subscriber has it, not before.
	created := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	relay, err := newRelay(db, created)
	if err != nil {
		return err
	}

	if err := whileRunning(ctx, router, func() error { return s.consume(ctx, requests) }); err != nil {
		return err
	}
	delivered, err := collect(ctx, created, createdTopic)
	if err != nil {
		return err
	}
	if err := whileRunning(ctx, relay, func() error { return s.relay(ctx, delivered) }); err != nil {
		return err
	}
	if err := created.Close(); err != nil {
		return err
	}
	return s.conclude(delivered)
}

// createDatabase creates the database with the business table in it, the counter at 6. The returned function closes it and removes
// a temporary one.
func createDatabase(path string) (db *sql.DB, cleanUp func() error, err error) {
	remove := func() error { return nil }
	if path == "" {
		dir, err := os.MkdirTemp("", "quickstart")
		if err != nil {
			return nil, nil, err
		}
		path, remove = filepath.Join(dir, "quickstart.db"), func() error { return os.RemoveAll(dir) }
	} else if _, err := os.Stat(path); err == nil {
		return nil, nil, fmt.Errorf("%s exists: the story begins with a new database, give another name or remove the file", path)
	}

	if db, err = openDatabase(path); err == nil {
		_, err = db.Exec(`CREATE TABLE reports (counter INTEGER NOT NULL); INSERT INTO reports VALUES (6)`)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create %s: %w", path, err), remove())
	}
	return db, func() error { return errors.Join(db.Close(), remove()) }, nil
}

// runner is a Router or a Forwarder.
type runner interface {
	Run(ctx context.Context) error
	Running() chan struct{}
	Close() error
}

// whileRunning calls fn while r runs.
func whileRunning(ctx context.Context, r runner, fn func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	select {
	case <-r.Running():
	case err := <-ended:
		return errors.Join(errors.New("did not start"), err)
	}
	return errors.Join(fn(), r.Close(), <-ended)
}

// collect acks all messages of a topic and returns their payloads. The channel is closed when the broker is.
func collect(ctx context.Context, broker message.Subscriber, topic string) (<-chan string, error) {
	messages, err := broker.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	payloads := make(chan string, 100) // room for far more than should come
	go func() {
		defer close(payloads)
		for msg := range messages {
			payloads <- string(msg.Payload)
			msg.Ack()
		}
	}()
	return payloads, nil
}
