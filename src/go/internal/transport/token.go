package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// reloadInterval is how often a token file is read again, if requests are made.
const reloadInterval = time.Second

// Token is a bearer token. A token from a file is read again when the file changes.
type Token struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	header string
	readAt time.Time
	// complained is set if the last error was logged already.
	complained bool
}

// NewToken returns a fixed token.
func NewToken(text string) (*Token, error) {
	header, err := bearer(text)
	if err != nil {
		return nil, err
	}
	return &Token{header: header}, nil
}

// NewTokenFile returns a token in a file.
func NewTokenFile(path string, log *slog.Logger) (*Token, error) {
	header, err := readToken(path)
	if err != nil {
		return nil, err
	}
	return &Token{path: path, log: log, header: header, readAt: time.Now()}, nil
}

// String keeps the token out of logs.
func (t *Token) String() string { return "Token(…)" }

// authorization returns the value of the header. It keeps the last token if the file cannot be read.
func (t *Token) authorization() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" || time.Since(t.readAt) < reloadInterval {
		return t.header
	}
	t.readAt = time.Now()
	switch header, err := readToken(t.path); {
	case err == nil:
		t.header, t.complained = header, false
	case !t.complained:
		t.complained = true
		t.log.Warn("the previous token stays in use", "error", err)
	}
	return t.header
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	// Servers ignore a trailing line break, too.
	header, err := bearer(strings.TrimRight(string(text), "\r\n"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return header, nil
}

var errBadToken = errors.New("a token is one line of visible ASCII characters")

func bearer(token string) (string, error) {
	// Not every proxy can handle other characters.
	for _, c := range []byte(token) {
		if c < ' ' || c > '~' {
			return "", errBadToken
		}
	}
	if token == "" {
		return "", errBadToken
	}
	return "Bearer " + token, nil
}

// credentials adds the token to each request. Whether the connection is secure enough was checked before it was made.
type tokenCredentials struct{ token *Token }

func (c tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": c.token.authorization()}, nil
}

func (c tokenCredentials) RequireTransportSecurity() bool { return false }
