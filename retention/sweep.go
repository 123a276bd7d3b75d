package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// sweep is one call of RunOnce.
type sweep struct {
	*Cleaner
	lock       wsql.Tx // nil: none is needed
	hasPending bool
	report     Report
}

func (s *sweep) run(ctx context.Context) error {
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()

	if s.hasPending, err = s.table.exists(ctx, deferred.Pending); err != nil {
		return err
	}
	err = s.table.consumers(ctx, func(consumer string) error {
		if err := s.consumer(ctx, consumer); err != nil {
			return fmt.Errorf("consumer %q: %w", consumer, err)
		}
		return nil
	})
	if err != nil || s.config.DeadPayloads == 0 {
		return err
	}
	return s.payloads(ctx)
}

// acquire takes the sweepers' lock, which belongs to a transaction that does nothing else, so that it holds no snapshot and no row.
func (s *sweep) acquire(ctx context.Context) (release func(), err error) {
	lock, _, unlock := s.table.SweeperLock()
	if lock.IsZero() {
		return func() {}, nil
	}
	begin, cancelBegin := context.WithTimeout(ctx, s.config.Timeout)
	defer cancelBegin()
	// The transaction must outlive ctx: a connection that went back to the pool with the lock would keep all sweepers out.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(begin, cancel)
	tx, err := s.table.runner.DB.BeginTx(txCtx, s.table.QueueTxOptions())
	if !stop() && err == nil {
		err = begin.Err()
	}
	if tx == nil || err != nil {
		cancel()
		return nil, fmt.Errorf("begin: %w", err)
	}
	release = func() {
		ctx, done := context.WithTimeout(context.Background(), s.config.Timeout)
		defer done()
		if !unlock.IsZero() {
			_, _ = sqltx.QueryRow(ctx, tx, unlock) // if it fails, the connection is lost, and the lock with it
		}
		_ = s.table.runner.Rollback(tx, cancel)
		cancel()
	}
	got, err := sqltx.QueryRow(begin, tx, lock)
	if err == nil && !got {
		err = ErrAnotherSweeper
	}
	if err != nil {
		release()
		return nil, err
	}
	s.lock = tx
	return release, nil
}

var errLockLost = errors.New("the connection with the sweepers' lock is lost")

// alone makes sure that the lock is still held. It also keeps servers from ending its connection as an idle one.
func (s *sweep) alone(ctx context.Context) error {
	if s.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	_, held, _ := s.table.SweeperLock()
	found, err := sqltx.QueryRow(ctx, s.lock, held)
	if err != nil {
		return fmt.Errorf("%w: %w", errLockLost, err)
	}
	if !found {
		return errLockLost
	}
	return nil
}

// pause lets consumers have the database for themselves.
func (s *sweep) pause(ctx context.Context) error {
	if !sqltx.Sleep(ctx, s.config.Pause) {
		return ctx.Err()
	}
	return s.alone(ctx)
}

func (s *sweep) observe(batch Batch) {
	defer func() {
		if cause := recover(); cause != nil {
			s.logger.Error("Observer panicked", fmt.Errorf("%v", cause), watermill.LogFields{"consumer": batch.Consumer})
		}
	}()
	s.config.Observer.ObserveBatch(batch)
}

func (s *sweep) consumer(ctx context.Context, consumer string) error {
	horizon := s.config.horizonOf(consumer)
	s.report.Consumers = append(s.report.Consumers, ConsumerReport{Consumer: consumer, Horizon: horizon})
	if horizon == Forever {
		return nil
	}
	report := &s.report.Consumers[len(s.report.Consumers)-1]
	condition := s.table.olderThan(horizon)
	for w := s.table.walk(consumer, condition, s.hasPending, s.config.Window); !w.ended; {
		start := time.Now()
		old, examined, err := w.next(ctx)
		if err != nil {
			return err
		}
		batch := Batch{Consumer: consumer, DryRun: s.config.DryRun, Examined: examined, Duration: time.Since(start)}
		if report.Examined += int64(examined); s.config.DryRun {
			batch.Removed = len(old)
			report.Removed += int64(len(old))
		}
		s.observe(batch)
		if s.config.DryRun || len(old) == 0 {
			err = s.pause(ctx)
		} else {
			err = s.remove(ctx, report, condition, old)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// remove deletes what a window found, in batches. There is no pause between the window, which held up nobody, and the first of them.
func (s *sweep) remove(ctx context.Context, report *ConsumerReport, condition string, old []found) error {
	if err := s.alone(ctx); err != nil {
		return err
	}
	for len(old) > 0 {
		var identities []inbox.Identity
		for _, one := range old[:min(len(old), s.config.BatchSize)] {
			identities = append(identities, one.Identity)
		}
		old = old[len(identities):]

		start := time.Now()
		var removed int
		err := s.table.write(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
			removed, err = s.table.remove(ctx, tx, report.Consumer, identities, condition, s.hasPending)
			return err
		})
		if err != nil {
			return err
		}
		report.Removed += int64(removed)
		s.observe(Batch{Consumer: report.Consumer, Removed: removed, Duration: time.Since(start)})
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// payloads removes those of messages that are dead for long.
func (s *sweep) payloads(ctx context.Context) error {
	for _, queue := range []deferred.Queue{deferred.Pending, deferred.Outgoing} {
		exists, err := s.table.exists(ctx, queue)
		if err != nil {
			return err
		}
		if !exists {
			continue
		}
		if s.config.DryRun {
			n, err := s.queues[queue].CountStrip(ctx, s.config.DeadPayloads)
			if err != nil {
				return err
			}
			s.report.Payloads += n
			continue
		}
		if err := s.strip(ctx, s.queues[queue]); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) strip(ctx context.Context, queue *deferred.Store) error {
	for {
		start := time.Now()
		removed, err := queue.Strip(ctx, s.config.DeadPayloads, s.config.BatchSize)
		if err != nil || removed == 0 {
			return err
		}
		s.report.Payloads += int64(removed)
		s.observe(Batch{Payloads: removed, Duration: time.Since(start)})
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
}
