package transport

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	clientsUse = "clients use --listen, 5100 by default"

	// maxTextBytes bounds texts of servers in errors and logs.
	maxTextBytes = 500
)

// Shorten shortens a text of a server.
func Shorten(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxTextBytes], "") + "…"
}

// Explain explains why a request to a server failed. It recognises ports that are not the one for clients.
func Explain(server string, err error) string {
	state, isStatus := status.FromError(err)
	if !isStatus {
		return fmt.Sprintf("%s: %s", server, Shorten(err.Error()))
	}
	message := state.Message()
	says := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(message, text) {
				return true
			}
		}
		return false
	}
	switch {
	case says("this server speaks TLS"):
		return fmt.Sprintf("%s speaks TLS: use https://%s, or set the CA", server, server)
	case says("first record does not look like a TLS handshake"):
		return fmt.Sprintf("%s does not speak TLS: use http://%s, without TLS options", server, server)
	case says("http2: frame too large", "unexpected HTTP status", "malformed header", "content-type"):
		return fmt.Sprintf("%s does not speak gRPC: this looks like the port of another service; %s", server, clientsUse)
	case says("draining", "server preface", "connection reset", "prior goaway", "broken pipe", "error reading from server: EOF"):
		return fmt.Sprintf("%s closed the connection without an answer: it is shutting down, it speaks TLS (use https://%s), "+
			"or this is the port of another service; %s", server, server, clientsUse)
	case state.Code() == codes.Unimplemented && (message == "" || says("unknown service")):
		return fmt.Sprintf("%s has no service doorman.Capacity: this looks like the --admin port or the peer port; %s",
			server, clientsUse)
	}
	return fmt.Sprintf("%s: %s (%s)", server, Shorten(message), state.Code())
}
