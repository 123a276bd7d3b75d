package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are T41: the handler ends the transaction itself.
var endedCases = []testCase{
	{name: "T41_GuardedTransactionRefusesToEnd", run: guardedTransactionRefusesToEnd, variants: true},
	{name: "T41_StdCommit", run: stdEnd(true), variants: true},
	{name: "T41_StdRollback", run: stdEnd(false), variants: true},
	{name: "T41_RollbackAsStatement", run: rollbackAsStatement, variants: true},
}

// endings are the ways to end the transaction of a context that the inbox can refuse.
func endings(ctx context.Context) map[string]func() error {
	tx, _ := inbox.TxFromContext(ctx)
	ends := map[string]func() error{"Tx.Commit": tx.Commit, "Tx.Rollback": tx.Rollback}
	if native, ok := inbox.PgxTxFromContext(ctx); ok {
		ends["pgx.Tx.Commit"] = func() error { return native.Commit(ctx) }
		ends["pgx.Tx.Rollback"] = func() error { return native.Rollback(ctx) }
	}
	return ends
}

func guardedTransactionRefusesToEnd(t *testing.T, f *fixture) {
	names := []string{"Tx.Commit", "Tx.Rollback"}
	if f.features().Native {
		names = append(names, "pgx.Tx.Commit", "pgx.Tx.Rollback")
	}
	for _, by := range []outgoingBy{nothingOut, returnedOut, publishedOut} {
		for _, name := range names {
			t.Run(fmt.Sprintf("%s,%s", name, by), func(t *testing.T) { f.refuseToEnd(t, by, name) })
		}
	}
	f.want(t, rows{})
}

func (f *fixture) refuseToEnd(t *testing.T, by outgoingBy, name string) {
	var s *service
	s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		if err := endings(msg.Context())[name](); !errors.Is(err, inbox.ErrTransactionLost) {
			t.Errorf("want ErrTransactionLost from %s, got %v", name, err)
		}
		return by.send(msg.Context(), s.inbox)
	})
	wantLost(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 1)
	s.wantErrorLogged(t, "m1")
	f.want(t, rows{})
}

// stdEnd ends a *sql.Tx, which cannot refuse. What the handler commits so stays, with the identity; outgoing messages must not be written in a
// transaction of their own.
func stdEnd(commit bool) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		if f.features().Native {
			t.Skip("there is no *sql.Tx")
		}
		for _, by := range []outgoingBy{nothingOut, returnedOut, publishedOut} {
			t.Run(by.String(), func(t *testing.T) {
				f.exec(t, "DELETE FROM "+inbox.DefaultMessagesTable)
				f.exec(t, "DELETE FROM biz")
				f.stdEnd(t, by, commit)
			})
		}
	}
}

func (f *fixture) stdEnd(t *testing.T, by outgoingBy, commit bool) {
	var s *service
	s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		tx, _ := inbox.StdTxFromContext(msg.Context())
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Errorf("end the transaction: %v", err)
		}
		return by.send(msg.Context(), s.inbox)
	})
	d := s.deliver(t, newMessage("m1"))
	wantLost(t, d)
	if inbox.IsRetryable(d.err) {
		t.Fatalf("a retry in this process would meet the same: %v", d.err)
	}
	s.wantCalls(t, 1)
	s.wantErrorLogged(t, "m1")
	if commit {
		f.want(t, rows{biz: 1, inbox: 1})
	} else {
		f.want(t, rows{})
	}
}

// rollbackAsStatement ends the transaction where the inbox does not see it. Nothing was committed, so nothing may be acked.
func rollbackAsStatement(t *testing.T, f *fixture) {
	if f.features().SwallowedErrorAborts && !f.features().Native {
		t.Skip("stated limit: COMMIT does not tell, the driver hides what it knows, and to ask would cost every message a round trip")
	}
	for _, by := range []outgoingBy{nothingOut, returnedOut, publishedOut} {
		t.Run(by.String(), func(t *testing.T) {
			var s *service
			s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
				if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
					return nil, err
				}
				if err := f.execInTx(msg.Context(), "ROLLBACK"); err != nil {
					return nil, err
				}
				return by.send(msg.Context(), s.inbox)
			})
			wantNack(t, s.deliver(t, newMessage("m1")))
			f.want(t, rows{})
		})
	}
}
