package transport

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// DefaultPort is the default port for clients, as for --listen of the server.
const DefaultPort = 5100

// maxHostBytes is the maximum length of a DNS name.
const maxHostBytes = 253

// Scheme says whether an endpoint uses TLS.
type Scheme int

const (
	// Unspecified is HOST:PORT.
	Unspecified Scheme = iota
	// Plain is http://, without TLS.
	Plain
	// TLS is https://.
	TLS
)

// Endpoint is a parsed endpoint.
type Endpoint struct {
	// Address is the normalised HOST:PORT: always with a port, and with IPv6 addresses in brackets.
	Address string
	Scheme  Scheme
}

// BadEndpointError says what is wrong with an endpoint, and what is expected.
type BadEndpointError struct {
	Endpoint string
	Why      string
}

func (e *BadEndpointError) Error() string {
	return fmt.Sprintf("leaseway: invalid server address %q: %s", e.Endpoint, e.Why)
}

// ParseEndpoint parses HOST:PORT, http://HOST:PORT or https://HOST:PORT. The default port is DefaultPort.
func ParseEndpoint(text string) (Endpoint, error) {
	bad := func(format string, args ...any) (Endpoint, error) {
		return Endpoint{}, &BadEndpointError{text[:min(len(text), maxHostBytes)], fmt.Sprintf(format, args...)}
	}
	endpoint, rest := Endpoint{}, strings.TrimSpace(text)
	if scheme, after, found := strings.Cut(rest, "://"); found {
		switch strings.ToLower(scheme) {
		case "http":
			endpoint.Scheme = Plain
		case "https":
			endpoint.Scheme = TLS
		default:
			return bad("unknown scheme `%s://`: write HOST:PORT, or https://HOST:PORT", scheme)
		}
		rest = strings.TrimSuffix(after, "/")
	}
	host, port := rest, strconv.Itoa(DefaultPort)
	switch colons := strings.Count(rest, ":"); {
	case isIPv6(rest):
	case strings.HasPrefix(rest, "["):
		inner, after, found := strings.Cut(rest[1:], "]")
		if !found {
			return bad("missing closing bracket: write [::1]:5100")
		}
		if !isIPv6(inner) {
			return bad("`%s` is not an IPv6 address", inner)
		}
		if after != "" && after[0] != ':' {
			return bad("expected `:` and a port after the bracket")
		}
		host = inner
		if after != "" {
			port = after[1:]
		}
	case colons > 1:
		return bad("several colons: write HOST:PORT, with an IPv6 address in brackets")
	default:
		if colons == 1 {
			host, port, _ = strings.Cut(rest, ":")
		}
		if why := checkHost(host); why != "" {
			return bad("%s", why)
		}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || port[0] == '+' {
		return bad("the port `%s` is not a number from 1 to 65535", port)
	}
	endpoint.Address = net.JoinHostPort(host, strconv.FormatUint(number, 10))
	return endpoint, nil
}

func isIPv6(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Is6() && address.Zone() == ""
}

// checkHost allows what URLs and resolvers accept. Underscores are not valid in host names, but container platforms use
// them. It returns what is wrong.
func checkHost(host string) string {
	if host == "" {
		return "missing host: write HOST:PORT, such as localhost:5100"
	}
	if len(host) > maxHostBytes {
		return fmt.Sprintf("the host has more than %d bytes", maxHostBytes)
	}
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		case c == '/':
			return "unexpected path: write HOST:PORT"
		case c == ',':
			return "unexpected comma: write one server"
		default:
			return fmt.Sprintf("invalid character %q in the host: write HOST:PORT, such as localhost:5100", c)
		}
	}
	return ""
}

// OverTLS returns whether these servers of one node use TLS. Either all do or none, because each may redirect a client
// to any other. wanted says that TLS was selected by other means.
func OverTLS(endpoints []Endpoint, wanted bool) (bool, error) {
	var plain, secured string
	for _, endpoint := range endpoints {
		switch {
		case endpoint.Scheme == Plain && plain == "":
			plain = endpoint.Address
		case endpoint.Scheme == TLS && secured == "":
			secured = endpoint.Address
		}
	}
	if plain != "" && secured != "" {
		why := fmt.Sprintf("it does not use TLS, but https://%s does: use https:// for all servers", secured)
		return false, &BadEndpointError{"http://" + plain, why}
	}
	if plain != "" && wanted {
		why := "http:// conflicts with TLS options: write https://, or HOST:PORT"
		return false, &BadEndpointError{"http://" + plain, why}
	}
	return wanted || secured != "", nil
}

// IsLoopback returns whether an address is on this machine.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
