//! Peers without TLS prove to each other that they know the secret, without sending it.
//!
//! Each connection has a challenge, made by the side that accepted it. A request carries HMAC-SHA256 over the
//! challenge, a nonce of the sender's process, a counter and all of the message; an answer the same over the proof of
//! its request and all of the answer. So no message can be made or changed without the secret; none can be replayed on
//! another connection, for that has another challenge, nor on the same one, for its counter was seen; and no answer
//! passes for that to another request. What is said can be read on the way all the same: only TLS hides that.
//!
//! A sender that does not know the challenge is told it, and sends the message again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use leaseway_proto::peer::{Heard, Introduction, PeerRequest, PeerResponse, Proof};
use prost::Message as _;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::method::Method;
use crate::{
    challenge::{Challenge, Nonce, nonce},
    settings::Secret,
};

/// Metadata key of the challenge in an answer to a sender that does not know it.
pub(super) const CHALLENGE: &str = "leaseway-challenge-bin";

/// What the proof of a message has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProofCheck {
    /// It comes from a peer.
    Valid,
    /// From something that does not know the secret; or it was changed on the way, or has come before.
    Invalid,
    /// The challenge is another.
    StaleChallenge,
}

/// The sending side of the connections to one address.
#[derive(Debug, Default)]
pub(super) struct ProofSession {
    /// The challenge of the newest of them, as far as it is known.
    challenge: Mutex<Vec<u8>>,
    counter: AtomicU64,
}

impl ProofSession {
    fn challenge(&self) -> Vec<u8> {
        self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The other side has told its challenge.
    pub(super) fn set_challenge(&self, challenge: Vec<u8>) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }
}

/// Proves this peer's messages and checks those of others, with the secret; without one, there is nothing to prove.
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

    /// Checks a request to the peer `to`, which is this one.
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

    /// The proof of an answer to the request with the proof `asked`.
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

/// All that a proof covers, each part with its length before it.
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
        .and(&introduction(request.from.as_ref()))
        .and(&request.to.to_be_bytes())
        .and(&request.payload)
}

fn over_answer(key: &hmac::Key, answer: &PeerResponse, asked: &Proof) -> Covered {
    let heard = answer.heard.as_ref().map(Heard::encode_to_vec).unwrap_or_default();
    Covered::new(key, "leaseway peer answer")
        .and(&asked.mac)
        .and(&introduction(answer.from.as_ref()))
        .and(&heard)
        .and(&answer.payload)
}

fn introduction(of: Option<&Introduction>) -> Vec<u8> {
    of.map(Introduction::encode_to_vec).unwrap_or_default()
}

#[cfg(test)]
mod tests;
