package inbox

import (
	"context"
	"database/sql"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// HandleTx makes a handler that gets its transaction as an argument, so that it cannot be forgotten. The handler must run
// inside an Inbox, else it fails with ErrNoTransaction. A second run in one transaction, by a Retry middleware inside the
// Inbox, is refused with ErrRetryInside.
func HandleTx(fn func(msg *message.Message, tx wsql.Tx) ([]*message.Message, error)) message.HandlerFunc {
	return handleWith(TxFromContext, fn)
}

// HandleStdTx is HandleTx for database/sql.
func HandleStdTx(fn func(msg *message.Message, tx *sql.Tx) ([]*message.Message, error)) message.HandlerFunc {
	return handleWith(StdTxFromContext, fn)
}

// HandlePgxTx is HandleTx for pgx.
func HandlePgxTx(fn func(msg *message.Message, tx pgx.Tx) ([]*message.Message, error)) message.HandlerFunc {
	return handleWith(PgxTxFromContext, fn)
}

// ConsumeTx is HandleTx for a handler that produces no messages, as Router.AddConsumerHandler takes it.
func ConsumeTx(fn func(msg *message.Message, tx wsql.Tx) error) message.NoPublishHandlerFunc {
	return consumeWith(TxFromContext, fn)
}

// ConsumeStdTx is ConsumeTx for database/sql.
func ConsumeStdTx(fn func(msg *message.Message, tx *sql.Tx) error) message.NoPublishHandlerFunc {
	return consumeWith(StdTxFromContext, fn)
}

// ConsumePgxTx is ConsumeTx for pgx.
func ConsumePgxTx(fn func(msg *message.Message, tx pgx.Tx) error) message.NoPublishHandlerFunc {
	return consumeWith(PgxTxFromContext, fn)
}

func consumeWith[T any](get func(context.Context) (T, bool), fn func(*message.Message, T) error) message.NoPublishHandlerFunc {
	handle := handleWith(get, func(msg *message.Message, tx T) ([]*message.Message, error) {
		return nil, fn(msg, tx)
	})
	return func(msg *message.Message) error {
		_, err := handle(msg)
		return err
	}
}

func handleWith[T any](get func(context.Context) (T, bool), fn func(*message.Message, T) ([]*message.Message, error)) message.HandlerFunc {
	handler := new(byte) // its address stands for this handler
	return func(msg *message.Message) (produced []*message.Message, err error) {
		tx, ok := get(msg.Context())
		if !ok {
			return nil, ErrNoTransaction
		}
		err = HandleOnce(msg.Context(), handler, func() error {
			produced, err = fn(msg, tx)
			return err
		})
		return produced, err
	}
}
