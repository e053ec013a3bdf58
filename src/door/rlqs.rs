//! Envoy reports what it lets through, and is assigned what it may (RLQS).
