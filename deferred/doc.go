// Package deferred stores messages first, acks the broker, and processes them later.
package deferred
