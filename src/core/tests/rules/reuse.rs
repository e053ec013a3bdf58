//! When the capacity freed by a shrink may be given to another holder.

use super::*;

/// The refreshes, 16 s apart, at which `b` gets its half of what `a` held alone.
fn refreshes_until_shared(reuse: Reuse, kind: HolderKind) -> (usize, Server) {
    let mut settings = fair(100.0);
    settings.reuse = reuse;
    let mut server = Server::new(settings);
    let all = [slice(1, 100.0, 0)];
    let first = |server: &mut Server| server.deliver(Ask { kind, ..server.node_request("a", &all) });
    assert_eq!(first(&mut server), 100.0);
    assert_eq!(server.asks("b", 100.0), 0.0);
    for refreshes in 1..5 {
        server.pass(16_000);
        assert_eq!(first(&mut server), 50.0, "a shrink is at once");
        if server.asks("b", 100.0) == 50.0 {
            return (refreshes, server);
        }
    }
    panic!("never");
}

#[test]
fn confirmed_waits_until_the_holder_has_shown_that_it_knows() {
    let (refreshes, server) = refreshes_until_shared(Reuse::Confirmed, HolderKind::Client);
    assert_eq!((refreshes, server.held()), (2, 100.0));
}

#[test]
fn prompt_is_a_refresh_faster() {
    let (refreshes, server) = refreshes_until_shared(Reuse::Prompt, HolderKind::Client);
    assert_eq!((refreshes, server.held()), (1, 100.0));
}

#[test]
fn towards_nodes_it_is_always_confirmed() {
    assert_eq!(refreshes_until_shared(Reuse::Prompt, HolderKind::Node).0, 2);
}

#[test]
fn confirmed_waits_no_longer_than_the_older_leases_last() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.asks("b", 100.0);
    server.pass(16_000);
    server.asks("a", 100.0); // and is never heard of again
    server.pass(61_060 - 16_000 - 1);
    assert_eq!(server.asks("b", 100.0), 0.0, "the first lease may be believed until 61.06 s");
    server.pass(41); // ends are told apart by tenths of a second
    assert_eq!(server.deliver(ask("b", 100.0, None)), 50.0, "the second lease of `a` is live");
}

#[test]
fn what_is_outstanding_is_not_reused_even_promptly() {
    for together in [false, true] {
        let mut settings = fair(100.0);
        settings.reuse = Reuse::Prompt;
        let mut server = Server::new(settings);
        server.asks("a", 100.0);
        server.asks("b", 100.0);
        server.pass(16_000);
        // It has 80 permits in use; so many transactions cannot be recalled.
        let in_use = Ask { outstanding: Some(Amount::clamped(80.0)), ..server.request("a", 100.0) };
        let waiting = server.request("b", 100.0);
        let got = if together {
            server.send_all([in_use, waiting]).map(|answer| granted(answer).capacity.get())
        } else {
            [server.deliver(in_use), server.deliver(waiting)]
        };
        assert_eq!(got, [50.0, 20.0]);
    }
}
