package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Inbox protects the handlers of one service against repeated deliveries. It is safe for concurrent use, and usually lives
// as long as the process; it holds no resources that need closing.
type Inbox struct {
	config  Config
	runner  *sqltx.Runner
	store   store
	checker TransactionChecker // nil: not needed, or switched off
	noWait  NoWaitInserter     // nil: wait
	starts  StartObserver      // nil: the Observer need not know
	logger  watermill.LoggerAdapter

	// handlerName is the first handler seen by an Inbox with a fixed consumer.
	handlerName atomic.Pointer[string]
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
	if err := errors.Join(sqltx.CheckPool(db), config.Validate(), validateLogger(logger)); err != nil {
		return nil, fmt.Errorf("inbox: invalid config: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}

	if tuner, ok := config.Schema.(PoolTuner); ok {
		config.Schema, db = tuner.TunePool(db)
	}
	i := &Inbox{
		config: config,
		runner: &sqltx.Runner{DB: db, Timeout: config.CommitTimeout, Logger: logger},
		store:  store{config.Schema},
		logger: logger,
	}
	if checker, ok := config.Schema.(TransactionChecker); ok && !config.SkipTransactionCheck {
		i.checker = checker
	}
	if inserter, ok := config.Schema.(NoWaitInserter); ok && config.NoWait {
		i.noWait = inserter
	}
	i.starts, _ = config.Observer.(StartObserver)

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
// instances at once. It must not run in a message's transaction. The time limits of the DSN hold for it, too: with a short lock_timeout or readTimeout it can
// fail while another instance is at it, and succeeds when called again.
func (i *Inbox) InitializeSchema(ctx context.Context) error {
	err := i.retryConflicts(ctx, func() error {
		return i.runner.InTx(ctx, nil, func(tx wsql.Tx) error { return i.store.initialize(ctx, tx) })
	})
	if err != nil {
		return fmt.Errorf("inbox: initialize schema: %w", err)
	}
	return i.Verify(ctx)
}

// Verify compares the live table of identities with what the dialect's DDL creates, and says what differs and why it
// matters, in a *TableError. It changes nothing. Call it at start when migrations create the table.
func (i *Inbox) Verify(ctx context.Context) error {
	err := i.retryConflicts(ctx, func() error {
		return i.runner.InTx(ctx, nil, func(tx wsql.Tx) error { return i.store.verify(ctx, tx) })
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
	return i.runner.Abandoned()
}
