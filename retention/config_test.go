package retention_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/sqlite"
)

func newCleaner(t *testing.T, config retention.Config, logger watermill.LoggerAdapter) error {
	t.Helper()
	db, err := sql.Open("sqlite", "file::memory:")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = retention.NewCleaner(wsql.BeginnerFromStdSQL(db), config, logger)
	return err
}

func TestEachMistakeNamesItsField(t *testing.T) {
	for field, config := range map[string]retention.Config{
		"Schema":                {Horizon: time.Hour},
		"Horizon is missing":    {Schema: sqlite.Schema{}},
		"Horizon is negative":   {Schema: sqlite.Schema{}, Horizon: -1},
		`Horizons["c"]`:         {Schema: sqlite.Schema{}, Horizon: time.Hour, Horizons: map[string]time.Duration{"c": 0}},
		`Horizons["d"]`:         {Schema: sqlite.Schema{}, Horizon: time.Hour, Horizons: map[string]time.Duration{"d": -time.Hour}},
		"Horizons has one":      {Schema: sqlite.Schema{}, Horizon: time.Hour, Horizons: map[string]time.Duration{"": time.Hour}},
		"BatchSize":             {Schema: sqlite.Schema{}, Horizon: time.Hour, BatchSize: 1001},
		"Window":                {Schema: sqlite.Schema{}, Horizon: time.Hour, Window: -1},
		"Pause":                 {Schema: sqlite.Schema{}, Horizon: time.Hour, Pause: -1},
		"DeadPayloads":          {Schema: sqlite.Schema{}, Horizon: time.Hour, DeadPayloads: -1},
		"Needs.BrokerRetention": {Schema: sqlite.Schema{}, Horizon: time.Hour, Needs: retention.Needs{BrokerRetention: -1}},
	} {
		require.ErrorContains(t, newCleaner(t, config, nil), field)
	}
	require.NoError(t, newCleaner(t, retention.Config{Schema: sqlite.Schema{}, Horizon: retention.Forever}, nil))
}

func TestHorizonBelowTheNeedsIsWarnedOf(t *testing.T) {
	const day = 24 * time.Hour
	needs := retention.Needs{BrokerRetention: 7 * day, MaxRedeliveryAge: 3 * day, DeadLetterAge: 10 * day, RelayRepublish: day, RestoreWindow: 2 * day}
	require.Equal(t, (2+1+7+10+7)*day, needs.Horizon())
	require.Equal(t, 3*day, retention.Needs{MaxRedeliveryAge: 3 * day}.Horizon())
	require.Zero(t, retention.Needs{}.Horizon())
	require.Equal(t, retention.Forever, retention.Needs{BrokerRetention: retention.Forever, DeadLetterAge: day}.Horizon())
	require.Equal(t, retention.Forever, retention.Needs{RestoreWindow: retention.Forever - day, RelayRepublish: 2 * day}.Horizon())

	logger := watermill.NewCaptureLogger()
	require.NoError(t, newCleaner(t, retention.Config{
		Schema: sqlite.Schema{}, Horizon: 27 * day, Horizons: map[string]time.Duration{"short": 26 * day, "long": retention.Forever}, Needs: needs,
	}, logger))
	warnings := logger.Captured()[watermill.ErrorLogLevel]
	require.Len(t, warnings, 1)
	require.Equal(t, "short", warnings[0].Fields["consumer"])
}

func TestSweepOfADatabaseThatIsAway(t *testing.T) {
	db, remove := openDatabase()
	defer remove()
	cleaner, err := retention.NewCleaner(wsql.BeginnerFromStdSQL(db), retention.Config{Schema: sqlite.Schema{}, Horizon: time.Hour}, nil)
	require.NoError(t, err)
	_, err = cleaner.RunOnce(context.Background())
	require.ErrorContains(t, err, "no such table")
}
