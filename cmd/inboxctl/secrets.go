package main

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// secrets are texts that must not be printed.
type secrets []string

var (
	// looksLikeDSN knows what only a DSN has, also one in the wrong place: inboxctl -dsn=… and inboxctl postgres://… end in errors that quote them.
	looksLikeDSN = regexp.MustCompile(`:.*@|://|^--?dsn=`)
	beforeUser   = regexp.MustCompile(`^(--?dsn=)?(mysql:)?`)
	inParameter  = regexp.MustCompile(`(?i)(?:password|passwd|pwd)\s*=\s*('[^']*'|[^&\s]+)`)
)

// newSecrets finds what may be a password in DSNs, whether they are well formed or not. Too much is better than too little: it is used on
// errors only.
func newSecrets(texts ...string) secrets {
	var found secrets
	for _, text := range texts {
		for _, match := range inParameter.FindAllStringSubmatch(text, -1) {
			found = append(found, strings.Trim(match[1], "'"))
		}
		if !looksLikeDSN.MatchString(text) {
			continue
		}
		if value, ok := strings.CutPrefix(strings.TrimLeft(text, "-"), "dsn="); ok && !strings.Contains(value, "@") {
			found = append(found, value)
		}
		// Everything from a colon to the last @, for each colon: which one ends the user's name is not known in a DSN with a mistake.
		before := text[:max(0, strings.LastIndexByte(text, '@'))]
		before = before[len(beforeUser.FindString(before)):]
		for rest, ok := "", true; ok; {
			if _, rest, ok = strings.Cut(before, ":"); ok {
				found = append(found, rest)
				before = rest
			}
		}
	}
	return found.withForms()
}

// withForms adds the forms in which errors quote a text. The longest come first, because they contain others.
func (s secrets) withForms() secrets {
	all := slices.Clone(s)
	for _, secret := range s {
		decoded, err := url.PathUnescape(secret)
		if err == nil {
			all = append(all, decoded, url.QueryEscape(decoded), url.PathEscape(decoded), url.UserPassword("", decoded).String()[1:])
		}
	}
	for _, secret := range slices.Clone(all) {
		quoted := strconv.Quote(secret)
		all = append(all, quoted[1:len(quoted)-1])
	}
	all = slices.DeleteFunc(all, func(secret string) bool { return strings.Trim(secret, "/") == "" })
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// oneLine returns a text without the secrets, line ends and control characters, such as those that paint a terminal.
func (s secrets) oneLine(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	var b strings.Builder
	for _, field := range strings.Fields(text) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		for _, r := range field {
			if unicode.IsPrint(r) {
				b.WriteRune(r)
			} else {
				quoted := strconv.QuoteRune(r)
				b.WriteString(quoted[1 : len(quoted)-1])
			}
		}
	}
	return b.String()
}
