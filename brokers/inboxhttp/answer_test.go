package inboxhttp_test

import (
	"errors"
	"fmt"
	"testing"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
)

func TestAnswer(t *testing.T) {
	t.Parallel()

	broken := errors.New("broken")
	for name, test := range map[string]struct {
		set  int
		err  error
		want int // 0: the default of watermill-http
	}{
		"success":                       {0, nil, 0},
		"success with a code":           {201, nil, 201},
		"success with an error's code":  {503, nil, 503},
		"failure":                       {0, broken, 500},
		"failure with a code":           {503, broken, 503},
		"failure with a success's code": {202, broken, 500},
		"failure with a redirection":    {304, broken, 500},
		"no identity":                   {202, fmt.Errorf("wrapped: %w", inbox.ErrNoIdentity), 400},
		"identity too long":             {0, inbox.ErrIdentityTooLong, 400},
		"mismatch":                      {0, fmt.Errorf("wrapped: %w", &inbox.MismatchError{}), 422},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			produced := message.NewMessage("produced", nil)
			msg := message.NewMessage("1", nil)
			got, err := inboxhttp.Answer(func(msg *message.Message) ([]*message.Message, error) {
				if test.set != 0 {
					wmhttp.SetResponseStatusCode(msg, test.set)
				}
				return []*message.Message{produced}, test.err
			})(msg)
			require.Equal(t, test.err, err)
			require.Equal(t, []*message.Message{produced}, got)
			require.Equal(t, test.want, wmhttp.StatusCodeFromContext(msg.Context(), 0))
		})
	}
}
