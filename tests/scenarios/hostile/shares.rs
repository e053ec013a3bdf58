//! One address cannot fill a table.

use tonic::Code;

use super::{ELSEWHERE, THIRD, Victim};
use crate::harness::{
    doorman::{Doorman, entry, node_request, request},
    push::try_watch_over,
    wait::eventually,
};

#[test]
fn an_address_does_not_fill_the_table_of_clients() {
    let victim = Victim::with_flags(&["--max-clients", "100"]);
    let stranger = Doorman::over(victim.server.channel());
    let answers = |doorman: &Doorman, name: &str, number: usize| {
        let ask = |n: usize| doorman.get(request(&format!("{name}-{n}"), vec![entry("r", 1.0)])).unwrap();
        (0..number).map(ask).filter(|answer| !answer.response.is_empty()).count()
    };
    let taken = answers(&stranger, "stranger", 200);
    assert!((70..=76).contains(&taken), "{taken} of 100");
    let refused = stranger.get(request("one more", vec![entry("r", 1.0)])).unwrap();
    assert!(refused.problem[0].message().contains("--address-share"), "{refused:?}");
    assert_eq!(refused.problem[0].reason(), "too_many_clients");
    let node = stranger.get_server(node_request("node", "r", &[(1, 1.0)])).unwrap();
    assert_eq!(node.problem[0].reason(), "too_many_clients");
    // Known clients are still served.
    assert_eq!(answers(&stranger, "stranger", 1), 1);
    assert!(victim.metric("leaseway_holder_shares_refused_total") >= 124.0);

    let other = Doorman::over(victim.server.channel_from(ELSEWHERE));
    let taken = answers(&other, "other", 200);
    assert!((15..=20).contains(&taken), "{taken} of the rest");
    let third = Doorman::over(victim.server.channel_from(THIRD));
    assert!(answers(&third, "third", 1) == 1, "a slot is free for a newcomer");

    // Released slots can be used again.
    (0..50).for_each(|n| stranger.release(&format!("stranger-{n}"), &["r"]).unwrap());
    assert!(answers(&stranger, "again", 20) == 20);
}

#[test]
fn an_address_does_not_fill_the_table_of_watchers() {
    let victim = Victim::with_flags(&["--max-watchers", "40"]);
    let stranger = victim.server.channel();
    let mut streams = Vec::new();
    let refused = eventually("the address has used up its share", || {
        let id = format!("stranger {}", streams.len());
        try_watch_over(stranger.clone(), Some(&id), None).map(|stream| streams.push(stream)).err()
    });
    assert!((28..=32).contains(&streams.len()), "{} of 40", streams.len());
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("--address-share"), "{refused:?}");
    let other = victim.server.channel_from(ELSEWHERE);
    let _stream = try_watch_over(other, Some("other"), None).unwrap();
    // Ended streams free slots for the same address.
    streams.truncate(20);
    eventually("a stream is accepted again", || try_watch_over(stranger.clone(), Some("again"), None).ok());
}
