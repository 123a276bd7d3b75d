package inbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsPoisonAndIsRetryable(t *testing.T) {
	d := &delivery{row: Row{Consumer: "billing", ID: "m1"}}
	for _, test := range []struct {
		name              string
		err               error
		poison, retryable bool
	}{
		{"nil", nil, false, false},
		{"handler", errors.New("no stock"), true, true},
		{"mismatch", &MismatchError{Consumer: "billing"}, true, false},
		{"wrapped mismatch", fmt.Errorf("x: %w", &MismatchError{}), true, false},
		{"no identity", d.fail(StageIdentity, ErrNoIdentity), true, false},
		{"too long", d.fail(StageIdentity, ErrIdentityTooLong), true, false},
		{"bad fingerprint", d.fail(StageIdentity, ErrBadFingerprint), true, false},
		{"bare no identity", ErrNoIdentity, true, false},
		{"conflict", d.fail(StageInsert, errConflict), false, true},
		{"missing table", d.fail(StageInsert, errors.New("no such table")), false, true},
		{"in flight", d.fail(StageInsert, ErrInFlight), false, true},
		{"uncertain", d.fail(StageCommit, ErrCommitUncertain), false, true},
		{"lost", d.fail(StageCommit, ErrTransactionLost), false, true},
		{"lost claim", d.fail(StageCommit, ErrClaimLost), false, false},
		{"claim of another consumer", ErrClaimConsumer, false, false},
		{"shared consumer", d.fail(StageIdentity, ErrConsumerShared), false, false},
		{"no consumer", d.fail(StageIdentity, ErrNoConsumer), false, false},
		{"no outbox", d.fail(StageOutbox, ErrNoOutbox), false, false},
		{"no topic", d.fail(StageOutbox, ErrNoPublishTopic), false, false},
		{"retry inside", d.fail(StageHandler, ErrRetryInside), false, false},
		{"nested", d.fail(StageIdentity, ErrNested), false, false},
		{"nacked", d.fail(StageHandler, ErrNacked), false, false},
		{"cancelled", fmt.Errorf("x: %w", context.Canceled), false, false},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), false, true},
		{"bad connection", fmt.Errorf("x: %w", driver.ErrBadConn), false, true},
		{"EOF of a decoder", io.ErrUnexpectedEOF, true, true},
		{"EOF of the connection", d.fail(StageHandler, io.ErrUnexpectedEOF), false, true},
		{"net", &net.OpError{Op: "read", Err: errors.New("reset")}, false, true},
	} {
		require.Equal(t, test.poison, IsPoison(test.err), "IsPoison: %s", test.name)
		require.Equal(t, test.retryable, IsRetryable(test.err), "IsRetryable: %s", test.name)
	}
}

func TestErrorNamesWhatFailed(t *testing.T) {
	d := &delivery{row: Row{Consumer: "billing", Producer: "shop", ID: "m 1"}}
	err := d.fail(StageInsert, io.EOF)
	require.EqualError(t, err, `inbox: consumer "billing": message "m 1" of producer "shop": insert identity: EOF`)
	require.ErrorIs(t, err, io.EOF)
}
