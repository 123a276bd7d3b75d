package inboxhttp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"
)

// DefaultMaxBody is the limit of a body in bytes: 1 MiB. GitHub sends up to 25 MB.
const DefaultMaxBody = 1 << 20

// FromHeader takes the message's UUID, by which the inbox knows it, from a header of the request. It is Config{IDHeader: name}.Unmarshal.
func FromHeader(name string) wmhttp.UnmarshalMessageFunc {
	return Config{IDHeader: name}.Unmarshal
}

// Config makes messages of requests. Its method Unmarshal is an UnmarshalMessageFunc of watermill-http. The zero value works.
type Config struct {
	// IDHeader is the header with the id, in any case. Default: Message-Uuid, where watermill-http's publisher puts it.
	IDHeader string

	// MaxBody limits the body, in bytes. More is an error of type *http.MaxBytesError, which watermill-http answers with 400.
	// Default: DefaultMaxBody.
	MaxBody int64

	// Keep says which headers become metadata: it gets the canonical name. What is kept reaches logs of handlers, poison queues and
	// tables of deferred messages. The id is not affected. Default: NoSecrets.
	Keep func(name string) bool
}

// Unmarshal makes a message of the request: the body is the payload, the id header the UUID, the other headers are metadata under their canonical names, as
// http.CanonicalHeaderKey spells them: "webhook-id" is "Webhook-Id" and "X-GitHub-Delivery" is "X-Github-Delivery". The id header
// is among the metadata, too. Several values of one header are joined with ", ".
func (c Config) Unmarshal(_ string, request *http.Request) (*message.Message, error) {
	id, err := c.id(request.Header)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(c.MaxBody, DefaultMaxBody)
	body, err := io.ReadAll(http.MaxBytesReader(nil, request.Body, limit))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, fmt.Errorf("inboxhttp: body has more than %d bytes: %w", limit, err)
	} else if err != nil {
		return nil, fmt.Errorf("inboxhttp: read body: %w", err)
	}

	msg := message.NewMessage(id, body)
	for name, values := range request.Header {
		if c.keeps(name) {
			msg.Metadata.Set(name, strings.Join(values, ", "))
		}
	}
	return msg, nil
}

func (c Config) id(header http.Header) (string, error) {
	name := cmp.Or(c.IDHeader, wmhttp.HeaderUUID)
	values := header.Values(name)
	if len(values) > 1 {
		return "", fmt.Errorf("inboxhttp: header %s occurs %d times", http.CanonicalHeaderKey(name), len(values))
	}
	return strings.Join(values, ""), nil
}

func (c Config) keeps(name string) bool {
	if c.Keep == nil {
		return NoSecrets(name)
	}
	return c.Keep(name)
}

// secrets are parts of names of headers that prove who the sender is.
var secrets = []string{
	"authorization", "cookie", "signature", "-sig", "hmac", "secret", "token", "password", "credential", "api-key", "apikey", "access-key", "client-cert",
}

// NoSecrets keeps all headers but those whose name tells that whoever reads them could pose as the sender or the user: Authorization, Cookie, Webhook-Signature,
// X-Hub-Signature-256, X-Shopify-Hmac-Sha256, X-Gitlab-Token, X-Api-Key and the like. It goes by the name only; Only is the safer choice.
func NoSecrets(name string) bool {
	name = strings.ToLower(name)
	for _, part := range secrets {
		if strings.Contains(name, part) {
			return false
		}
	}
	return true
}

// Only keeps the named headers, in any case, and no other.
func Only(names ...string) func(name string) bool {
	kept := make(map[string]bool, len(names))
	for _, name := range names {
		kept[http.CanonicalHeaderKey(name)] = true
	}
	return func(name string) bool { return kept[http.CanonicalHeaderKey(name)] }
}
