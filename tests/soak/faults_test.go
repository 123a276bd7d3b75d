package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// killConsumers goes on until done. The youngest consumer has always just begun to work, and it may be the next one to die.
func (r *run) killConsumers(done <-chan struct{}) {
	for {
		r.mu.Lock()
		youngest := r.living[len(r.living)-1]
		r.mu.Unlock()
		select {
		case <-youngest.acked:
		case <-done:
			return
		case <-r.ctx.Done():
			return
		}
		if !r.sleep(killAfter, done) {
			return
		}

		r.mu.Lock()
		i := rand.IntN(len(r.living))
		victim := r.living[i]
		r.living = append(r.living[:i:i], r.living[i+1:]...)
		r.mu.Unlock()
		if err := victim.kill(); err != nil {
			r.broke(fmt.Errorf("kill a consumer: %w", err))
			return
		}
		r.mu.Lock()
		r.ended.add(victim.counted())
		r.killed++
		r.mu.Unlock()
		if err := r.startConsumer(); err != nil {
			r.broke(err)
			return
		}
	}
}

// restartDatabase goes on until done, by turns with a crash and with an orderly stop.
func (r *run) restartDatabase(done <-chan struct{}) {
	for crash := true; r.sleep(restartAfter, done); crash = !crash {
		if crash {
			r.awaitCommits()
		}
		began := time.Now()
		r.mu.Lock()
		r.upSince = time.Time{}
		r.mu.Unlock()
		if err := r.restart(crash); err != nil {
			r.broke(fmt.Errorf("restart the database: %w", err))
			return
		}

		r.mu.Lock()
		r.upSince = time.Now()
		if crash {
			r.crashes++
		} else {
			r.stops++
		}
		r.mu.Unlock()
		r.Logf("%.1f s: the database was away for %.1f s (crash: %t)", time.Since(r.began).Seconds(), time.Since(began).Seconds(), crash)
	}
}

// awaitCommits waits for COMMITs that a crash can leave without an answer. At the end of the soak there may be none, for all that is left are
// repetitions.
func (r *run) awaitCommits() {
	ctx, cancel := context.WithTimeout(r.ctx, commitsWithin)
	defer cancel()
	for running := 0; running < commitsAtCrash && ctx.Err() == nil; {
		if err := r.server.admin.QueryRowContext(ctx, r.database.commits).Scan(&running); err != nil {
			return // the restart will tell
		}
	}
}

func (r *run) restart(crash bool) error {
	signal := r.server.stop
	if crash {
		signal = r.server.crash
	}
	if err := r.server.end(signal); err != nil {
		return err
	}
	return r.server.start(r.ctx)
}

// sleep reports false if the faults are to end.
func (r *run) sleep(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-done:
	case <-r.ctx.Done():
	}
	return false
}

// enough tells whether the soak is worth its name.
func (r *run) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed >= r.kills && r.crashes+r.stops >= r.restarts
}
