package leaseway

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
)

// DialEnv is [Dial], configured by the environment variables of the command leaseway. A variable is ignored if an option
// sets the same: [WithEndpoints] the servers, [WithTLS] all of TLS, [WithToken] and [WithTokenFile] the token.
//
//	LEASEWAY_SERVER           servers of the node, with commas (default 127.0.0.1:5100)
//	LEASEWAY_TLS              true: TLS, with the CAs of the system
//	LEASEWAY_TLS_CA           a PEM file with the CAs to trust instead
//	LEASEWAY_TLS_CERT         a PEM file with the certificate to show, with its key in LEASEWAY_TLS_KEY;
//	LEASEWAY_TLS_KEY          new connections use renewed files
//	LEASEWAY_TLS_SERVER_NAME  what the certificates of servers must be for
//	LEASEWAY_TOKEN_FILE       a file with a bearer token, which is read again when it changes
//	LEASEWAY_INSECURE         true: the token is sent without TLS to other machines, too
func DialEnv(options ...Option) (*Client, error) {
	s := newSettings(nil, options)
	if servers := os.Getenv("LEASEWAY_SERVER"); len(s.endpoints) == 0 && servers != "" {
		s.endpoints = strings.Split(servers, ",")
	}
	if len(s.endpoints) == 0 {
		s.endpoints = []string{"127.0.0.1:5100"}
	}
	if s.tls == nil {
		config, err := tlsFromEnv()
		if err != nil {
			return nil, err
		}
		s.tls = config
	}
	if s.token == "" && s.tokenFile == "" {
		s.tokenFile = os.Getenv("LEASEWAY_TOKEN_FILE")
	}
	s.clearToken = s.clearToken || isSet("LEASEWAY_INSECURE")
	return dial(s)
}

// isSet returns whether a variable switches something on.
func isSet(variable string) bool {
	switch strings.ToLower(os.Getenv(variable)) {
	case "", "0", "false", "no", "off":
		return false
	}
	return true
}

// tlsFromEnv returns nil if the environment does not ask for TLS.
func tlsFromEnv() (*tls.Config, error) {
	ca, cert, key := os.Getenv("LEASEWAY_TLS_CA"), os.Getenv("LEASEWAY_TLS_CERT"), os.Getenv("LEASEWAY_TLS_KEY")
	name := os.Getenv("LEASEWAY_TLS_SERVER_NAME")
	if ca == "" && cert == "" && key == "" && name == "" && !isSet("LEASEWAY_TLS") {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, badFile("LEASEWAY_TLS_CA", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, badOption("LEASEWAY_TLS_CA", "%s has no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, badOption("LEASEWAY_TLS_CERT", "a certificate needs its key in LEASEWAY_TLS_KEY")
	}
	if cert != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, badFile("LEASEWAY_TLS_CERT", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return config, nil
}
