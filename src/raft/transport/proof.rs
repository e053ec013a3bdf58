//! Proofs of the shared secret, for peers without TLS. The secret is never sent.
//!
//! The side that accepts a connection creates a challenge for it. A request carries an HMAC-SHA256 over the challenge,
//! a nonce of the sender's process, a counter and the whole message. An answer carries one over the proof of its
//! request and the whole answer. So:
//! - nobody without the secret can create or change a message;
//! - no message can be replayed: another connection has another challenge, and on the same one the counter was seen;
//! - no answer passes for the answer to another request.
//!
//! Messages are not encrypted: only TLS does that. A sender that does not know the challenge yet is told it in an
//! error, and sends the message again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use leaseway_proto::peer::{MasterInfo, PeerInfo, PeerRequest, PeerResponse, Proof};
use prost::Message as _;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::{
    settings::Secret,
    transport::{
        Method,
        challenge::{Challenge, Nonce, nonce},
    },
};

/// Metadata key of the challenge, in the error to a sender that does not know it.
pub(super) const CHALLENGE: &str = "leaseway-challenge-bin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProofCheck {
    Valid,
    /// The sender does not know the secret, or the message was changed or replayed.
    Invalid,
    /// The sender does not know the challenge.
    StaleChallenge,
}

/// The sender's state of proofs to one address.
#[derive(Debug, Default)]
pub(super) struct ProofSession {
    /// The challenge of the newest connection; empty if it is unknown.
    challenge: Mutex<Vec<u8>>,
    counter: AtomicU64,
}

impl ProofSession {
    fn challenge(&self) -> Vec<u8> {
        self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_challenge(&self, challenge: Vec<u8>) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }
}

/// Creates and checks proofs. Without a secret, no message has one.
#[derive(Debug)]
pub(crate) struct Prover {
    key: Option<hmac::Key>,
    nonce: Nonce,
}

impl Prover {
    pub(crate) fn new(secret: Option<&Secret>) -> Prover {
        let key = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.bytes()));
        Prover { key, nonce: nonce() }
    }

    /// The proof of a request to the peer `to`.
    pub(super) fn prove(&self, request: &PeerRequest, method: Method, to: &str, with: &ProofSession) -> Option<Proof> {
        let key = self.key.as_ref()?;
        let mut proof = Proof {
            challenge: with.challenge(),
            nonce: self.nonce.to_vec(),
            counter: with.counter.fetch_add(1, Ordering::Relaxed),
            mac: Vec::new(),
        };
        proof.mac = over_request(key, request, method, to, &proof).sign().as_ref().to_vec();
        Some(proof)
    }

    /// Checks a request to this peer, whose name is `to`.
    pub(super) fn check(&self, request: &PeerRequest, method: Method, to: &str, challenge: &Challenge) -> ProofCheck {
        let (key, proof) = match (&self.key, &request.proof) {
            (Some(key), Some(proof)) => (key, proof),
            (None, None) => return ProofCheck::Valid,
            _ => return ProofCheck::Invalid,
        };
        if proof.challenge != challenge.bytes() {
            return ProofCheck::StaleChallenge;
        }
        let is_genuine = over_request(key, request, method, to, proof).verifies(&proof.mac);
        if is_genuine && challenge.admits(proof.counter) { ProofCheck::Valid } else { ProofCheck::Invalid }
    }

    /// The proof of an answer to the request whose proof is `asked`.
    pub(super) fn prove_answer(&self, answer: &PeerResponse, asked: Option<&Proof>) -> Option<Proof> {
        let (key, asked) = (self.key.as_ref()?, asked?);
        let mac = over_answer(key, answer, asked).sign().as_ref().to_vec();
        Some(Proof { mac, ..Proof::default() })
    }

    pub(super) fn verify_answer(&self, answer: &PeerResponse, asked: Option<&Proof>) -> bool {
        match (&self.key, asked, &answer.proof) {
            (Some(key), Some(asked), Some(proof)) => over_answer(key, answer, asked).verifies(&proof.mac),
            (key, _, proof) => key.is_none() && proof.is_none(),
        }
    }
}

/// The parts that a proof covers, each with its length before it.
struct Covered(hmac::Context);

impl Covered {
    fn new(key: &hmac::Key, what: &str) -> Covered {
        Covered(hmac::Context::with_key(key)).and(what.as_bytes())
    }

    fn and(mut self, part: &[u8]) -> Covered {
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    fn sign(self) -> hmac::Tag {
        self.0.sign()
    }

    /// In constant time.
    fn verifies(self, mac: &[u8]) -> bool {
        self.sign().as_ref().ct_eq(mac).into()
    }
}

fn over_request(key: &hmac::Key, request: &PeerRequest, method: Method, to: &str, proof: &Proof) -> Covered {
    Covered::new(key, "leaseway peer request")
        .and(method.name().as_bytes())
        .and(to.as_bytes())
        .and(&proof.challenge)
        .and(&proof.nonce)
        .and(&proof.counter.to_be_bytes())
        .and(&info(request.from.as_ref()))
        .and(&request.to.to_be_bytes())
        .and(&request.payload)
}

fn over_answer(key: &hmac::Key, answer: &PeerResponse, asked: &Proof) -> Covered {
    let master = answer.master.as_ref().map(MasterInfo::encode_to_vec).unwrap_or_default();
    Covered::new(key, "leaseway peer answer")
        .and(&asked.mac)
        .and(&info(answer.from.as_ref()))
        .and(&master)
        .and(&answer.payload)
}

fn info(of: Option<&PeerInfo>) -> Vec<u8> {
    of.map(PeerInfo::encode_to_vec).unwrap_or_default()
}

#[cfg(test)]
mod tests;
