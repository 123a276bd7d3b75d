package inboxamqp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// stringOf gives the same string for the same value, always.
func stringOf(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case []byte:
		return string(value)
	case bool:
		return strconv.FormatBool(value)
	case float32:
		return formatFloat(float64(value), 32)
	case float64:
		return formatFloat(value, 64)
	case amqp091.Decimal:
		return formatDecimal(value)
	case time.Time:
		return formatTime(value)
	case amqp091.Table, map[string]any, []any:
		return formatJSON(value)
	default: // integers
		return fmt.Sprint(value)
	}
}

func formatFloat(value float64, bits int) string { return strconv.FormatFloat(value, 'g', -1, bits) }

func formatTime(value time.Time) string { return value.UTC().Format(time.RFC3339) }

func formatDecimal(value amqp091.Decimal) string {
	digits, scale := big.NewInt(int64(value.Value)).String(), int(value.Scale)
	if scale == 0 {
		return digits
	}
	sign := ""
	if value.Value < 0 {
		sign, digits = "-", digits[1:]
	}
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

func formatJSON(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(jsonOf(value)); err != nil {
		return fmt.Sprint(value) // only types that AMQP does not have
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// jsonOf makes a value that encoding/json can encode. The encoder sorts the keys.
func jsonOf(value any) any {
	switch value := value.(type) {
	case amqp091.Table:
		return jsonOf(map[string]any(value))
	case map[string]any:
		object := make(map[string]any, len(value))
		for key, field := range value {
			object[key] = jsonOf(field)
		}
		return object
	case []any:
		array := make([]any, len(value))
		for i, element := range value {
			array[i] = jsonOf(element)
		}
		return array
	case float32:
		return jsonFloat(float64(value), 32)
	case float64:
		return jsonFloat(value, 64)
	case amqp091.Decimal:
		return json.RawMessage(formatDecimal(value))
	case time.Time:
		return formatTime(value)
	default:
		return value
	}
}

func jsonFloat(value float64, bits int) any {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return formatFloat(value, bits)
	}
	return json.RawMessage(formatFloat(value, bits))
}
