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
fn a_message_that_knows_the_secret_and_the_challenge_is_proven_once() {
    let (sender, receiver, challenge) = (prover("s"), prover("s"), Challenge::new());
    let message = proven(&sender, &challenge);
    assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Valid);
    assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Invalid, "a replay");
}

#[test]
fn whatever_is_changed_on_the_way_shows() {
    let (sender, receiver) = (prover("s"), prover("s"));
    let changes: [fn(&mut PeerRequest); 6] = [
        |message| message.payload = "y".into(),
        |message| message.to = 8,
        |message| message.from.as_mut().expect("it says who").name = "c".into(),
        |message| message.from = None,
        |message| message.proof.as_mut().expect("it has one").counter += 1,
        |message| message.proof.as_mut().expect("it has one").nonce[0] ^= 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let challenge = Challenge::new();
        let mut message = proven(&sender, &challenge);
        change(&mut message);
        assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Invalid, "change {number}");
    }
    let challenge = Challenge::new();
    let message = proven(&sender, &challenge);
    assert_eq!(receiver.check(&message, Method::Vote, "b", &challenge), ProofCheck::Invalid, "another method");
    assert_eq!(receiver.check(&message, Method::Append, "c", &challenge), ProofCheck::Invalid, "another receiver");
    assert_eq!(receiver.check(&message, Method::Append, "b", &Challenge::new()), ProofCheck::StaleChallenge);
    assert_eq!(receiver.check(&message, Method::Append, "b", &challenge), ProofCheck::Valid, "it is good after all");
}

#[test]
fn without_the_secret_there_is_no_proof_and_where_there_is_no_secret_none_is_expected() {
    let (challenge, none) = (Challenge::new(), Prover::new(None));
    let foreign = proven(&prover("other"), &challenge);
    assert_eq!(prover("s").check(&foreign, Method::Append, "b", &challenge), ProofCheck::Invalid);
    assert_eq!(prover("s").check(&request("x"), Method::Append, "b", &challenge), ProofCheck::Invalid);
    assert_eq!(none.check(&foreign, Method::Append, "b", &challenge), ProofCheck::Invalid);
    assert_eq!(none.check(&request("x"), Method::Append, "b", &challenge), ProofCheck::Valid);
}

#[test]
fn an_answer_is_to_its_request_alone() {
    let (asking, answering) = (prover("s"), prover("s"));
    let session = ProofSession::default();
    let [first, second] = [sent(&asking, &session), sent(&asking, &session)].map(|sent| sent.proof);
    let mut answer = PeerResponse { payload: "yes".into(), ..PeerResponse::default() };
    answer.proof = answering.prove_answer(&answer, first.as_ref());
    assert!(asking.verify_answer(&answer, first.as_ref()));
    assert!(!asking.verify_answer(&answer, second.as_ref()), "it is that to another");
    assert!(!prover("other").verify_answer(&answer, first.as_ref()));
    let changed = PeerResponse { payload: "no".into(), ..answer.clone() };
    assert!(!asking.verify_answer(&changed, first.as_ref()));
    assert!(!asking.verify_answer(&PeerResponse { proof: None, ..answer }, first.as_ref()));
    assert!(Prover::new(None).verify_answer(&PeerResponse::default(), None));
}
