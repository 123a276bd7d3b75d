package brokertest

import (
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var errFirstRun = errors.New("the first run fails")

// handle is the handler.
func (w *worker) handle(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
	key, _ := inbox.IdempotencyKey(msg.Context())
	id := w.identity(msg)
	w.tell(event{Kind: handling, ID: id.ID, Producer: id.Producer, Key: key})

	if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects (consumer, id) VALUES ($1, $2)", w.Group, id.ID); err != nil {
		return nil, err
	}
	w.holdIf(beforeCommit, id)
	if w.Behaviour.FailFirst && w.failed.CompareAndSwap(false, true) {
		return nil, errFirstRun
	}

	payload, err := json.Marshal(map[string]string{"consumer": w.Group, "id": id.ID})
	if err != nil {
		return nil, err
	}
	// A random UUID: a second run of the handler would produce another message.
	return []*message.Message{message.NewMessage(watermill.NewUUID(), payload)}, nil
}

func (w *worker) identity(msg *message.Message) inbox.Identity {
	id, _ := w.broker.Identity(msg)
	return id
}

// watch is the outermost middleware.
func (w *worker) watch(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		id := w.identity(msg)
		w.tell(event{Kind: delivered, ID: id.ID, Producer: id.Producer})
		produced, err := h(msg)
		if err == nil {
			w.holdIf(beforeAck, id)
		}
		w.ended.Add(1)
		return produced, err
	}
}

// holdIf stops at the worst moments. It does not care for any context.
func (w *worker) holdIf(place string, id inbox.Identity) {
	if w.Behaviour.HoldAt != place || int(w.ended.Load()) < w.Behaviour.HoldAfter {
		return
	}
	select {
	case <-w.gate:
		return
	default:
	}
	w.tell(event{Kind: held, ID: id.ID, Producer: id.Producer, Text: place})
	<-w.gate
}

// observer tells how each delivery ended.
type observer func(event)

func (tell observer) ObserveDelivery(report inbox.DeliveryReport) {
	e := event{
		Kind: ended, ID: report.Identity.ID, Producer: report.Identity.Producer, Outcome: report.Outcome.String(),
		NoIdentity: errors.Is(report.Err, inbox.ErrNoIdentity),
	}
	if report.Err != nil {
		e.Text = report.Err.Error()
	}
	tell(e)
}

// errorTeller is the logger of the subscriber.
type errorTeller struct {
	watermill.LoggerAdapter
	tell func(event)
}

func (l errorTeller) Error(msg string, err error, fields watermill.LogFields) {
	e := event{Kind: logged, Text: msg}
	if err != nil {
		e.Text += ": " + err.Error()
	}
	l.tell(e)
	l.LoggerAdapter.Error(msg, err, fields)
}

func (l errorTeller) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return errorTeller{l.LoggerAdapter.With(fields), l.tell}
}
