package inboxtest

import (
	"slices"
	"sync"
	"testing"
)

// testCase is one test of the suite. Its name is that of the trap where there is one.
type testCase struct {
	name string
	run  func(t *testing.T, f *fixture)

	// variants: the outcome may depend on the DSN, so the case runs with each.
	variants bool

	// empty: the database has no tables yet.
	empty bool
}

// cases are all tests of the suite.
var cases = [][]testCase{
	identityCases,
	refusedCases,
	consumerCases,
	fingerprintCases,
	effectCases,
	observerCases,
	schemaCases,
	tableCases,
	conflictCases,
	interruptCases,
	swallowCases,
	endedCases,
	transactionCases,
	commitCases,
	retryCases,
	poisonCases,
	middlewareCases,
	outboxCases,
	publisherCases,
	orderCases,
	shutdownCases,
	shutdownErrorCases,
	ddlCases,
	waiterCases,
}

// atOnce is how many tests of the suite run at once. They mostly wait for the server, so the number of processors, which t.Parallel goes by, would be
// too low. Servers allow about a hundred connections.
const atOnce = 6

// TestSchema runs the whole suite as subtests, several at once.
func TestSchema(t *testing.T, database Database) {
	runCases(t, database, slices.Concat(cases...))
}

func runCases(t *testing.T, database Database, cases []testCase) {
	queue := make(chan testCase)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for c := range queue {
				t.Run(c.name, func(t *testing.T) { c.run(t, newFixture(t, database, c.empty)) })
			}
		}()
	}
	for _, c := range cases {
		if c.variants || !database.Variant {
			queue <- c
		}
	}
	close(queue)
	workers.Wait()
}
