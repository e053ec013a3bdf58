//! Proofs of the shared secret, for peers without TLS. The secret is never sent.
//!
//! The side that accepts a connection creates a challenge for it. A request carries an HMAC-SHA256 over the challenge,
//! a nonce of the sender's process, a counter and the whole message. An answer carries one over the proof of its
//! request and the whole answer. So:
//! - nobody without the secret can create or change a message;
//! - no message can be replayed: another connection has another challenge, and on the same one the counter was seen;
//! - no answer passes for the answer to another request.
//!
//! Messages are not encrypted: only TLS does that. A sender that does not know the challenge receives it in an error,
//! and sends the message again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use leaseway_proto::peer::{MasterInfo, PeerInfo, PeerRequest, PeerResponse, Proof};
use prost::Message as _;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::{settings::Secret, transport::Method};

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
        proof.mac = mac_of_request(key, request, method, to, &proof).sign().as_ref().to_vec();
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
        let is_genuine = mac_of_request(key, request, method, to, proof).verifies(&proof.mac);
        if is_genuine && challenge.admits(proof.counter) { ProofCheck::Valid } else { ProofCheck::Invalid }
    }

    /// Proves an answer. `asked` is the proof of its request.
    pub(super) fn prove_answer(&self, answer: &PeerResponse, asked: Option<&Proof>) -> Option<Proof> {
        let (key, asked) = (self.key.as_ref()?, asked?);
        let mac = mac_of_answer(key, answer, asked).sign().as_ref().to_vec();
        Some(Proof { mac, ..Proof::default() })
    }

    pub(super) fn verify_answer(&self, answer: &PeerResponse, asked: Option<&Proof>) -> bool {
        match (&self.key, asked, &answer.proof) {
            (Some(key), Some(asked), Some(proof)) => mac_of_answer(key, answer, asked).verifies(&proof.mac),
            (key, _, proof) => key.is_none() && proof.is_none(),
        }
    }
}

/// The parts that a proof covers, each with its length before it.
struct MacInput(hmac::Context);

impl MacInput {
    fn new(key: &hmac::Key, what: &str) -> MacInput {
        MacInput(hmac::Context::with_key(key)).and(what.as_bytes())
    }

    fn and(mut self, part: &[u8]) -> MacInput {
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

fn mac_of_request(key: &hmac::Key, request: &PeerRequest, method: Method, to: &str, proof: &Proof) -> MacInput {
    MacInput::new(key, "leaseway peer request")
        .and(method.name().as_bytes())
        .and(to.as_bytes())
        .and(&proof.challenge)
        .and(&proof.nonce)
        .and(&proof.counter.to_be_bytes())
        .and(&info(request.from.as_ref()))
        .and(&request.to.to_be_bytes())
        .and(&request.payload)
}

fn mac_of_answer(key: &hmac::Key, answer: &PeerResponse, asked: &Proof) -> MacInput {
    let master = answer.master.as_ref().map(MasterInfo::encode_to_vec).unwrap_or_default();
    MacInput::new(key, "leaseway peer answer")
        .and(&asked.mac)
        .and(&info(answer.from.as_ref()))
        .and(&master)
        .and(&answer.payload)
}

fn info(of: Option<&PeerInfo>) -> Vec<u8> {
    of.map(PeerInfo::encode_to_vec).unwrap_or_default()
}

const NONCE_BYTES: usize = 16;

pub(crate) type Nonce = [u8; NONCE_BYTES];

pub(crate) fn nonce() -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).expect("the system has random bytes");
    nonce
}

/// The number of requests that may overtake a request on its connection.
const WINDOW: usize = 1024;

/// The challenge of a connection, and the counters that were seen on it.
#[derive(Debug)]
pub(crate) struct Challenge {
    nonce: Nonce,
    seen: Mutex<ReplayWindow>,
}

impl Challenge {
    pub(crate) fn new() -> Challenge {
        Challenge { nonce: nonce(), seen: Mutex::default() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.nonce
    }

    /// Whether this counter is new. False if it is too old to know.
    pub(crate) fn admits(&self, counter: u64) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).admits(counter)
    }
}

/// The counters that were seen.
#[derive(Debug, Default)]
struct ReplayWindow {
    /// The highest counter plus one; zero if there was none.
    next: u64,
    /// One bit for each of the last [`WINDOW`] counters, at the counter modulo [`WINDOW`].
    seen: [u64; WINDOW / 64],
}

impl ReplayWindow {
    fn admits(&mut self, counter: u64) -> bool {
        let Some(after) = counter.checked_add(1) else { return false };
        if after > self.next {
            // The counters that were skipped have not been seen.
            for skipped in self.next.max(after.saturating_sub(WINDOW as u64))..after {
                self.bit(skipped, |word, bit| *word &= !bit);
            }
            self.next = after;
        } else if self.next - after >= WINDOW as u64 {
            return false;
        }
        let mut is_new = false;
        self.bit(counter, |word, bit| {
            is_new = *word & bit == 0;
            *word |= bit;
        });
        is_new
    }

    fn bit(&mut self, counter: u64, change: impl FnOnce(&mut u64, u64)) {
        let position = (counter % WINDOW as u64) as usize;
        change(&mut self.seen[position / 64], 1 << (position % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prover(secret: &str) -> Prover {
        Prover::new(Some(&Secret::new(secret)))
    }

    fn request(payload: &str) -> PeerRequest {
        let from = Some(PeerInfo { name: "a".into(), ..PeerInfo::default() });
        PeerRequest { from, to: 7, payload: payload.into(), proof: None }
    }

    /// A request of a peer that knows the challenge.
    fn proven(by: &Prover, challenge: &Challenge) -> PeerRequest {
        let session = ProofSession::default();
        session.set_challenge(challenge.bytes().to_vec());
        sent(by, &session)
    }

    fn sent(by: &Prover, session: &ProofSession) -> PeerRequest {
        let mut request = request("x");
        request.proof = by.prove(&request, Method::Append, "b", session);
        request
    }

    #[test]
    fn a_request_with_the_secret_and_the_challenge_is_valid_once() {
        let (sender, receiver, challenge) = (prover("s"), prover("s"), Challenge::new());
        let message = proven(&sender, &challenge);
        assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Valid);
        assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Invalid, "a replay");
    }

    #[test]
    fn a_changed_request_is_invalid() {
        let (sender, receiver) = (prover("s"), prover("s"));
        let changes: [fn(&mut PeerRequest); 6] = [
            |message| message.payload = "y".into(),
            |message| message.to = 8,
            |message| message.from.as_mut().expect("it has a sender").name = "c".into(),
            |message| message.from = None,
            |message| message.proof.as_mut().expect("it has one").counter += 1,
            |message| message.proof.as_mut().expect("it has one").nonce[0] ^= 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let challenge = Challenge::new();
            let mut message = proven(&sender, &challenge);
            change(&mut message);
            assert_eq!(
                receiver.check(&message, Method::Append, "b", &challenge),
                ProofCheck::Invalid,
                "change {number}"
            );
        }
        let challenge = Challenge::new();
        let message = proven(&sender, &challenge);
        assert_eq!(receiver.check(&message, Method::Vote, "b", &challenge), ProofCheck::Invalid, "another method");
        assert_eq!(receiver.check(&message, Method::Append, "c", &challenge), ProofCheck::Invalid, "another receiver");
        assert_eq!(receiver.check(&message, Method::Append, "b", &Challenge::new()), ProofCheck::StaleChallenge);
        assert_eq!(
            receiver.check(&message, Method::Append, "b", &challenge),
            ProofCheck::Valid,
            "the unchanged request is valid"
        );
    }

    #[test]
    fn a_proof_is_required_if_and_only_if_there_is_a_secret() {
        let (challenge, none) = (Challenge::new(), Prover::new(None));
        let foreign = proven(&prover("other"), &challenge);
        assert_eq!(prover("s").check(&foreign, Method::Append, "b", &challenge), ProofCheck::Invalid);
        assert_eq!(prover("s").check(&request("x"), Method::Append, "b", &challenge), ProofCheck::Invalid);
        assert_eq!(none.check(&foreign, Method::Append, "b", &challenge), ProofCheck::Invalid);
        assert_eq!(none.check(&request("x"), Method::Append, "b", &challenge), ProofCheck::Valid);
    }

    #[test]
    fn an_answer_is_valid_for_its_request_only() {
        let (asking, answering) = (prover("s"), prover("s"));
        let session = ProofSession::default();
        let [first, second] = [sent(&asking, &session), sent(&asking, &session)].map(|sent| sent.proof);
        let mut answer = PeerResponse { payload: "yes".into(), ..PeerResponse::default() };
        answer.proof = answering.prove_answer(&answer, first.as_ref());
        assert!(asking.verify_answer(&answer, first.as_ref()));
        assert!(!asking.verify_answer(&answer, second.as_ref()), "the answer to another request");
        assert!(!prover("other").verify_answer(&answer, first.as_ref()));
        let changed = PeerResponse { payload: "no".into(), ..answer.clone() };
        assert!(!asking.verify_answer(&changed, first.as_ref()));
        assert!(!asking.verify_answer(&PeerResponse { proof: None, ..answer }, first.as_ref()));
        assert!(Prover::new(None).verify_answer(&PeerResponse::default(), None));
    }

    #[test]
    fn counters_may_arrive_out_of_order_within_the_window() {
        let mut window = ReplayWindow::default();
        let most = WINDOW as u64;
        for counter in [5, 3, 4, 0, most, 1] {
            assert!(window.admits(counter), "{counter}");
            assert!(!window.admits(counter), "{counter} again");
        }
        assert!(window.admits(2 * most), "far ahead");
        for (counter, is_new) in [(most, false), (most + 1, true), (most + 1, false), (2 * most, false), (0, false)] {
            assert_eq!(window.admits(counter), is_new, "{counter}");
        }
        assert!(window.admits(1_000 * most) && !window.admits(2 * most), "earlier counters are too old");
        assert!(!window.admits(u64::MAX), "the last counter");
    }
}
