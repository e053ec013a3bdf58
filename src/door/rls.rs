//! Envoy asks for each request (RLS), with the rules of envoyproxy/ratelimit.
