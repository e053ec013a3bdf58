package leaseway

import (
	"io"
	"net/http"
	"sync"
)

// NewTransport returns an http.RoundTripper whose requests wait for limiter. A gauge's permit is in use until the body of
// the response was read to its end or closed. base is http.DefaultTransport if it is nil.
func NewTransport(base http.RoundTripper, limiter Limiter) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &limitedTransport{base, limiter}
}

type limitedTransport struct {
	base    http.RoundTripper
	limiter Limiter
}

func (t *limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	end, err := t.limiter.Begin(request.Context())
	if err != nil {
		// A RoundTripper has to close the body, also if it fails.
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	end = sync.OnceFunc(end)
	isOngoing := false
	defer func() {
		// Also if there is a panic.
		if !isOngoing {
			end()
		}
	}()
	response, err := t.base.RoundTrip(request)
	if err != nil || response.Body == http.NoBody {
		return response, err
	}
	isOngoing = true
	body := &limitedBody{response.Body, end}
	response.Body = body
	if writer, isWriter := body.ReadCloser.(io.Writer); isWriter {
		// The body of a response that switches protocols.
		response.Body = &limitedStream{body, writer}
	}
	return response, nil
}

// CloseIdleConnections is for http.Client.
func (t *limitedTransport) CloseIdleConnections() {
	if base, has := t.base.(interface{ CloseIdleConnections() }); has {
		base.CloseIdleConnections()
	}
}

// limitedBody is a body with whose end an operation ends.
type limitedBody struct {
	io.ReadCloser
	end func()
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *limitedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

type limitedStream struct {
	*limitedBody
	io.Writer
}
