package inboxhttp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
)

// GitHub gives each event an id that stays the same when it is delivered again.
func ExampleFromHeader() {
	config := wmhttp.SubscriberConfig{UnmarshalMessageFunc: inboxhttp.FromHeader("X-GitHub-Delivery")}

	request := httptest.NewRequest(http.MethodPost, "/github", strings.NewReader(`{"zen": "Keep it logically awesome."}`))
	request.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	request.Header.Set("X-GitHub-Event", "ping")
	request.Header.Set("X-Hub-Signature-256", "sha256=…")

	msg, err := config.UnmarshalMessageFunc("/github", request)
	fmt.Println(msg.UUID, msg.Metadata, err)
	// Output: 72d3162e-cc78-11e3-81ab-4c9367dc0958 map[X-Github-Delivery:72d3162e-cc78-11e3-81ab-4c9367dc0958 X-Github-Event:ping] <nil>
}

// Stripe has the event's id in the body.
func ExampleConfig_body() {
	eventID := func(msg *message.Message) (inbox.Identity, error) {
		var event struct{ ID string }
		err := json.Unmarshal(msg.Payload, &event)
		return inbox.Identity{Producer: "stripe", ID: event.ID}, err
	}
	inboxConfig := inbox.Config{Identity: eventID /* … */}
	subscriberConfig := wmhttp.SubscriberConfig{UnmarshalMessageFunc: inboxhttp.Config{MaxBody: 64 << 10}.Unmarshal}

	request := httptest.NewRequest(http.MethodPost, "/stripe", strings.NewReader(`{"id": "evt_1", "type": "charge.succeeded"}`))
	msg, err := subscriberConfig.UnmarshalMessageFunc("/stripe", request)
	if err != nil {
		panic(err)
	}
	fmt.Println(inboxConfig.Identity(msg))
	// Output: {stripe evt_1} <nil>
}
