package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// sender is who sends webhooks, and looks into the database as senders cannot.
type sender struct {
	w   io.Writer
	db  *sql.DB
	url string
}

func (s sender) play(ctx context.Context) error {
	fmt.Fprintln(s.w, "id     amount  answer  balance  inbox rows")
	for _, request := range []struct {
		id      string
		amount  int
		balance int // what it should be then
		meaning string
	}{
		{"msg_1", 10, 10, "Balance and identity were committed, then came the answer."},
		{"msg_2", 5, 15, "Another message."},
		{"msg_1", 10, 15, "The sender repeats: it is told again that all is well, and nothing is booked."},
	} {
		answer, err := s.send(ctx, request.id, fmt.Sprintf(`{"amount": %d}`, request.amount))
		if err != nil {
			return err
		}
		var balance, rows int
		if err := s.db.QueryRowContext(ctx, `SELECT (SELECT amount FROM balance), (SELECT COUNT(*) FROM inbox_messages)`).
			Scan(&balance, &rows); err != nil {
			return err
		}
		fmt.Fprintf(s.w, "%-5s  %6d  %6d  %7d  %10d  %s\n", request.id, request.amount, answer, balance, rows, request.meaning)
		if answer != http.StatusOK || balance != request.balance {
			return fmt.Errorf("%s: answer %d, balance %d, want %d and %d", request.id, answer, balance, http.StatusOK, request.balance)
		}
	}
	return nil
}

func (s sender) send(ctx context.Context, id, payload string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(payload))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Webhook-Id", id)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
