package inboxhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
)

var _ wmhttp.UnmarshalMessageFunc = inboxhttp.Config{}.Unmarshal

func request(body string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/topic", strings.NewReader(body))
	for n := 0; n < len(headers); n += 2 {
		r.Header.Add(headers[n], headers[n+1])
	}
	return r
}

func TestFromHeader(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		header, id string
		request    []string
	}{
		"Standard Webhooks":              {"webhook-id", "msg_1", []string{"Webhook-Id", "msg_1"}},
		"GitHub":                         {"X-GitHub-Delivery", "72d3162e", []string{"X-GitHub-Delivery", "72d3162e"}},
		"watermill-http":                 {"", "uuid", []string{"Message-Uuid", "uuid"}},
		"missing":                        {"Webhook-Id", "", []string{"Message-Uuid", "not asked for"}},
		"bytes and case of ids":          {"Webhook-Id", "Ä\xff a", []string{"Webhook-Id", "Ä\xff a"}},
		"an id that looks like a secret": {"X-Token-Id", "id", []string{"X-Token-Id", "id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			msg, err := inboxhttp.FromHeader(test.header)("/topic", request("payload", test.request...))
			require.NoError(t, err)
			require.Equal(t, test.id, msg.UUID)
			require.Equal(t, message.Payload("payload"), msg.Payload)
		})
	}
}

func TestUnmarshal_refuses_two_ids(t *testing.T) {
	t.Parallel()

	_, err := inboxhttp.FromHeader("webhook-id")("/topic", request("payload", "Webhook-Id", "1", "Webhook-Id", "1"))
	require.EqualError(t, err, "inboxhttp: header Webhook-Id occurs 2 times")
}

func TestUnmarshal_metadata(t *testing.T) {
	t.Parallel()

	headers := []string{
		"webhook-id", "msg_1", "x-github-event", "push", "Accept", "a", "Accept", "b",
		"Authorization", "s", "Proxy-Authorization", "s", "Cookie", "s", "Webhook-Signature", "s", "X-Hub-Signature-256", "s", "X-Shopify-Hmac-SHA256", "s",
		"X-Gitlab-Token", "s", "X-Api-Key", "s", "Paypal-Transmission-Sig", "s", "X-Amz-Security-Token", "s",
	}
	public := message.Metadata{"Webhook-Id": "msg_1", "X-Github-Event": "push", "Accept": "a, b"}

	msg, err := inboxhttp.FromHeader("Webhook-Id")("/topic", request("", headers...))
	require.NoError(t, err)
	require.Equal(t, public, msg.Metadata)

	msg, err = inboxhttp.Config{IDHeader: "Webhook-Id", Keep: inboxhttp.Only("X-GitHub-Event", "authorization")}.Unmarshal("/topic", request("", headers...))
	require.NoError(t, err)
	require.Equal(t, "msg_1", msg.UUID)
	require.Equal(t, message.Metadata{"X-Github-Event": "push", "Authorization": "s"}, msg.Metadata)
}

func TestUnmarshal_limits_the_body(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		limit int64
		size  int
		fits  bool
	}{
		"at the default":   {0, inboxhttp.DefaultMaxBody, true},
		"over the default": {0, inboxhttp.DefaultMaxBody + 1, false},
		"at the limit":     {10, 10, true},
		"over the limit":   {10, 11, false},
		"empty":            {10, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			body := strings.Repeat("x", test.size)
			msg, err := inboxhttp.Config{MaxBody: test.limit}.Unmarshal("/topic", request(body))
			if test.fits {
				require.NoError(t, err)
				require.Len(t, msg.Payload, test.size)
				return
			}
			require.Nil(t, msg)
			var tooLarge *http.MaxBytesError
			require.ErrorAs(t, err, &tooLarge)
			require.ErrorContains(t, err, "inboxhttp: body has more than ")
		})
	}
}

func TestUnmarshal_fails_with_a_body_that_breaks_off(t *testing.T) {
	t.Parallel()

	r := request("", "Message-Uuid", "1")
	broken := errors.New("broken")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), errorReader{broken}))
	_, err := inboxhttp.Config{}.Unmarshal("/topic", r)
	require.ErrorIs(t, err, broken)
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func FuzzUnmarshal(f *testing.F) {
	f.Add("Webhook-Id", "msg_1", []byte("payload"))
	f.Add("webhook-id", "", []byte(nil))
	f.Add("Cookie", "Ä\xff", []byte("more than sixteen bytes"))
	f.Fuzz(func(t *testing.T, name, value string, body []byte) {
		r := request(string(body))
		r.Header[name] = []string{value} // as it is: a server would have refused most
		msg, err := inboxhttp.Config{IDHeader: "Webhook-Id", MaxBody: 16}.Unmarshal("/topic", r)
		if len(body) > 16 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, string(body), string(msg.Payload))
		require.Equal(t, r.Header.Get("Webhook-Id"), msg.UUID)
		require.Equal(t, inboxhttp.NoSecrets(name), len(msg.Metadata) == 1)
	})
}
