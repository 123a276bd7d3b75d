package deferred_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// TestClaimsBlockNobody holds the transaction of a claim before its COMMIT. Meanwhile another worker claims and processes all other messages, and
// a Receiver stores new ones.
func TestClaimsBlockNobody(t *testing.T) {
	for name, d := range databases.All {
		if d.Schema.(deferred.Dialect).OneWriter() {
			continue // one writer: a claim holds the database
		}
		t.Run(name, func(t *testing.T) {
			const messages, claimed = 200, 10
			config := deferred.SubscriberConfig{MaxInFlight: claimed, Lease: time.Hour, Timeout: 10 * time.Minute}
			pool, closePool, err := d.Open(d.Create(t), 10)
			require.NoError(t, err)
			t.Cleanup(closePool)
			holding, goOn := make(chan struct{}), make(chan struct{})
			defer close(goOn) // before the Subscribers are closed
			hold := sync.OnceFunc(func() {
				close(holding)
				<-goOn
			})
			holder := newService(t, &databases.Recorder{Beginner: pool, BeforeCommit: func(statements []string) {
				if strings.Contains(strings.Join(statements, "\n"), "attempts = attempts + 1") {
					hold()
				}
			}}, d, config)
			other := newService(t, &databases.Recorder{Beginner: pool}, d, config)
			other.receive(t, messages)
			_, err = holder.subscriber.Subscribe(t.Context(), orders)
			require.NoError(t, err)
			<-holding

			other.receive(t, messages)
			other.process(t, 2*messages-claimed)
		})
	}
}
