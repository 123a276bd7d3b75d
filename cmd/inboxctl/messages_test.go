package main

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

func decode[T any](t *testing.T, r result) (document T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.succeeds(t)), &document))
	return document
}

// Names are any bytes. They come out as quoted strings, go in as such, and in JSON they are exact.
func TestNamesOfAnyBytes(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		const consumer, id, payload = "c\xff\x1b[31m", "id\x00é ", "\x00\x1b[31mred"
		db.receive(t, consumer, message.NewMessage(id, []byte(payload)))
		db.receive(t, `"quoted"`, message.NewMessage("trailing ", []byte("text\n<b>é</b>")))

		table := db.run(t, "list").succeeds(t)
		require.Contains(t, table, `"c\xff\x1b[31m"`)
		require.Contains(t, table, `"id\x00é "`)
		require.Contains(t, table, `"\"quoted\""`)
		require.Contains(t, table, `"trailing "`)
		found := decode[messageList](t, db.run(t, "list", "-o", "json", "--consumer", `"c\xff\x1b[31m"`)).Messages
		require.Len(t, found, 1)
		require.Equal(t, consumer, string(found[0].ConsumerBase64))
		require.Equal(t, id, found[0].ID)
		require.Len(t, decode[messageList](t, db.run(t, "list", "-o", "json", "--consumer", consumer)).Messages, 1, "raw bytes are the same name")
		require.Len(t, decode[messageList](t, db.run(t, "list", "-o", "json", "--consumer", `"\"quoted\""`)).Messages, 1)
		require.Contains(t, db.run(t, "list", "--consumer", `"c`).fails(t, 2), "--consumer")

		full := decode[fullMessage](t, db.run(t, "show", "1", "-o", "json"))
		require.Equal(t, payload, string(full.Payload))
		require.Equal(t, payload, *full.PayloadText)
		require.Contains(t, db.run(t, "show", "1").succeeds(t), "00000000  00 1b 5b 33 31 6d 72 65  64 ")
		require.Contains(t, db.run(t, "show", "1", "--payload", "text").succeeds(t), `\x00\x1b[31mred`)
		require.Contains(t, db.run(t, "show", "2").succeeds(t), "text\n<b>é</b>\n")
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(3)...)
		db.kill(t, stock, 3)
		db.receive(t, mail, messages(2)...)

		all := decode[messageList](t, db.run(t, "list", "-o", "json"))
		require.Len(t, all.Messages, 5)
		require.Nil(t, all.NextAfter)
		first := all.Messages[0]
		require.Equal(t, []string{"dead", stock, orders, "evt-1", "attempts exhausted", "no prices yet"},
			[]string{first.State, first.Consumer, first.Topic, first.ID, first.Reason, first.LastError})

		page := decode[messageList](t, db.run(t, "list", "-o", "json", "--limit", "2"))
		require.Len(t, page.Messages, 2)
		rest := decode[messageList](t, db.run(t, "list", "-o", "json", "--after", strconv.FormatInt(*page.NextAfter, 10)))
		require.Equal(t, all.Messages[2:], rest.Messages)

		for n, args := range map[int][][]string{
			3: {{"--state", "dead"}, {"--reason", "no prices"}, {"--reason", "exhausted"}, {"--consumer", stock}, {"--limit", "3"}},
			2: {{"--state", "pending,claimed"}, {"--consumer", mail}, {"--consumer", mail, "--topic", orders}, {"--reason", "no prices", "--limit", "2"}},
			0: {{"--state", "waiting"}, {"--topic", "none"}, {"--consumer", mail, "--state", "dead"}, {"--queue", "pending", "--after", "1000"}},
		} {
			for _, flags := range args {
				require.Len(t, decode[messageList](t, db.run(t, append([]string{"list", "-o", "json"}, flags...)...)).Messages, n, flags)
			}
		}
		require.Contains(t, db.run(t, "list", "--consumer", "nobody").fails(t, 4), "there is no consumer nobody")
		db.exec(t, "UPDATE inbox_pending SET metadata = '{' WHERE seq = 5")
		r := db.run(t, "show", "5", "-o", "json")
		require.Contains(t, r.fails(t, 1), "stored metadata")
		require.Contains(t, r.stdout, `"id": "evt-2"`)
		require.Contains(t, r.stdout, `"payload_base64": null`)
		require.Contains(t, db.run(t, "show", "4711").fails(t, 4), "no message 4711")
	})
}
