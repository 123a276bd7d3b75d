package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// Inbox protects the handlers of one service against repeated deliveries. It is safe for concurrent use, and usually lives
// as long as the process; it holds no resources that need closing.
type Inbox struct {
	db      wsql.Beginner
	config  Config
	store   store
	checker TransactionChecker // nil: not needed, or switched off
	noWait  NoWaitInserter     // nil: wait
	logger  watermill.LoggerAdapter

	// handlerName is the first handler seen by an Inbox with a fixed consumer.
	handlerName atomic.Pointer[string]

	// abandoned counts the COMMITs and ROLLBACKs that did not return within CommitTimeout and still run.
	abandoned atomic.Int64
}

// initializeTimeout bounds what New does with AutoInitializeSchema, which may wait for another instance.
const initializeTimeout = time.Minute

// New makes an Inbox on a database handed in through wsql.BeginnerFromStdSQL or wsql.BeginnerFromPgx. The database must be
// a pool: a single connection is refused. A nil logger logs nothing.
//
// All mistakes in the configuration that can be seen are returned, each naming its field. New talks to the database only if
// AutoInitializeSchema is set.
func New(db wsql.Beginner, config Config, logger watermill.LoggerAdapter) (*Inbox, error) {
	config.setDefaults()
	if err := errors.Join(validatePool(db), config.Validate(), validateLogger(logger)); err != nil {
		return nil, fmt.Errorf("inbox: invalid config: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}

	i := &Inbox{db: db, config: config, store: store{config.Schema}, logger: logger}
	if checker, ok := config.Schema.(TransactionChecker); ok && !config.SkipTransactionCheck {
		i.checker = checker
	}
	if inserter, ok := config.Schema.(NoWaitInserter); ok && config.NoWait {
		i.noWait = inserter
	}

	if err := i.probeOutbox(); err != nil {
		return nil, fmt.Errorf("inbox: invalid config: Outbox: %w", err)
	}
	if config.AutoInitializeSchema {
		ctx, cancel := context.WithTimeout(context.Background(), initializeTimeout)
		defer cancel()
		if err := i.InitializeSchema(ctx); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// InitializeSchema creates the table of identities if it is missing and then verifies it. It is safe to call again and by many
// instances at once. It must not run in a message's transaction.
func (i *Inbox) InitializeSchema(ctx context.Context) error {
	err := i.retryConflicts(ctx, func() error {
		return i.inTx(ctx, func(tx wsql.Tx) error { return i.store.initialize(ctx, tx) })
	})
	if err != nil {
		return fmt.Errorf("inbox: initialize schema: %w", err)
	}
	return i.Verify(ctx)
}

// Verify compares the live table of identities with what the dialect's DDL creates, and says what differs and why it
// matters. It changes nothing. Call it at start when migrations create the table.
func (i *Inbox) Verify(ctx context.Context) error {
	err := i.retryConflicts(ctx, func() error {
		return i.inTx(ctx, func(tx wsql.Tx) error { return i.store.verify(ctx, tx) })
	})
	if err != nil {
		return fmt.Errorf("inbox: verify schema: %w", err)
	}
	return nil
}

// AbandonedStatements returns how many COMMITs and ROLLBACKs did not return within CommitTimeout and still run, each holding
// a connection and a goroutine. Drivers that ignore the context there end them when the connection breaks: set
// readTimeout in the DSN of go-sql-driver/mysql.
func (i *Inbox) AbandonedStatements() int64 {
	return i.abandoned.Load()
}

// inTx runs fn in a transaction of its own. Even statements that only read run in one: in a pool with autocommit
// off they would leave a transaction open on the connection.
func (i *Inbox) inTx(ctx context.Context, fn func(tx wsql.Tx) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	open := true
	defer func() {
		if open {
			_ = i.rollback(tx, cancel)
		}
	}()

	if err := fn(tx); err != nil {
		return err
	}
	open = false
	if err := i.commit(tx, cancel); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// errTimeout says that COMMIT or ROLLBACK did not return in time.
type errTimeout struct{ statement string }

func (e errTimeout) Error() string { return e.statement + " did not return within CommitTimeout" }
func (e errTimeout) Unwrap() error { return context.DeadlineExceeded }

// commit is bounded by CommitTimeout with every driver.
func (i *Inbox) commit(tx wsql.Tx, cancelTx context.CancelFunc) error {
	return i.finish(tx, "COMMIT", cancelTx, pgx.Tx.Commit, wsql.Tx.Commit)
}

// rollback is bounded by CommitTimeout with every driver.
func (i *Inbox) rollback(tx wsql.Tx, cancelTx context.CancelFunc) error {
	return i.finish(tx, "ROLLBACK", cancelTx, pgx.Tx.Rollback, wsql.Tx.Rollback)
}

func (i *Inbox) finish(
	tx wsql.Tx,
	statement string,
	cancelTx context.CancelFunc,
	withContext func(pgx.Tx, context.Context) error,
	withoutContext func(wsql.Tx) error,
) error {
	ctx, cancel := context.WithTimeout(context.Background(), i.config.CommitTimeout)
	defer cancel()

	if pgxTx, ok := nativePgx(tx); ok {
		return withContext(pgxTx, ctx)
	}

	// database/sql has no context here. Some drivers stop when the context of BeginTx ends, others only when
	// the connection breaks, so the call may outlive this function.
	done := make(chan error, 1)
	go func() { done <- withoutContext(tx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		i.abandoned.Add(1)
		go func() {
			err := <-done
			i.abandoned.Add(-1)
			i.logger.Debug("Abandoned "+statement+" returned", watermill.LogFields{"err": err})
		}()
		cancelTx()
		return errTimeout{statement}
	}
}
