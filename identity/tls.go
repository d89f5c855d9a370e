package identity

import (
	"crypto/tls"
	"errors"
)

// ServerTLS is the configuration of a listener: TLS 1.3, a certificate of the client,
// and that of now on each side. It serves gRPC and HTTP alike; who the caller is says
// [Source.Peer] with the connection's certificates and [ForClient].
func (s *Source) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The library's own check of chains knows neither SPIFFE ids nor trust domains;
		// VerifyConnection does it all.
		ClientAuth: tls.RequireAnyClientCert,
		// A resumed connection would stand on an old look at the certificate.
		SessionTicketsDisabled: true,
		NextProtos:             []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c := s.now().certificate
			return &c, nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := s.Peer(state.PeerCertificates, ForClient)
			if err != nil {
				s.refused.log(s.cfg, err)
			}
			return err
		},
	}
}

// ClientTLS is the configuration of a client that talks to the workload with this
// SPIFFE id and to nobody else (T4). It fails with [lastword.CodeInvalid] if that is
// none, or of a domain that is not trusted.
func (s *Source) ClientTLS(authority string) (*tls.Config, error) {
	want, err := parseID(authority)
	if err != nil {
		return nil, err
	}
	if !s.now().trust.bundles.Has(want.TrustDomain()) {
		return nil, invalid("the authority %q is of a trust domain without certificates here; there are those of %q", authority, s.Domains())
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c := s.now().certificate
			return &c, nil
		},
		// Host names say nothing here: the pinned id does.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it all, also of a resumed connection
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := s.Peer(state.PeerCertificates, ForServer)
			if err != nil {
				return err
			}
			if peer.id != authority {
				return &Refusal{Reason: OtherPeer, ID: clip(peer.id), Err: errors.New("expected " + authority)}
			}
			return nil
		},
	}, nil
}
