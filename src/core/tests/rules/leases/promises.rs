//! The totals and horizons that a master proposes, and the answers that wait for them.

use super::*;
use crate::lease::proposer::Proposal;
use crate::{
    lease::promises::{Changes, Inherited},
    types::{ClusterTime, Epoch},
};

fn keeper(settings: Settings) -> Server {
    Server::with_options(ResourceOptions { inherited: Some(Inherited::default()), ..options(settings) })
}

impl Server {
    fn take(&mut self) -> Proposal {
        self.resource.take_changes(self.now)
    }

    /// Stores all pending changes.
    fn settle(&mut self) -> Option<Changes> {
        let changes = self.take().changes;
        if let Some(changes) = &changes {
            self.resource.acknowledge(changes.number);
        }
        changes
    }

    fn promised(&self) -> f64 {
        self.resource.promises().expect("promises are kept").total.get()
    }
}

#[test]
fn total_leaves_room_and_is_bounded_by_the_capacity() {
    let mut server = keeper(fair(100.0));
    let told = [20.0, 21.0, 31.5, 90.0, 500.0].map(|wants| {
        server.pass(5_000);
        server.asks("a", wants);
        server.take().changes.map(|changes| changes.total.get())
    });
    assert_eq!(told, [Some(32.5), None, Some(44.0), Some(95.0), Some(100.0)]);
}

#[test]
fn lease_waits_only_for_the_total_that_covers_it() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    let Proposal { changes: Some(changes), awaits: Some(1) } = server.take() else {
        panic!("nothing was promised yet")
    };
    // A lease of 60 s has certainly expired after 61.06 s. The horizon adds five eighths of a lease length, and a
    // thousandth for fast clocks.
    assert_eq!((changes.total.get(), changes.horizon), (52.5, Some(ClusterTime(98_560 + 99))));
    assert_eq!(changes.wants.as_deref(), Some(&[Claim::of_client(Amount::clamped(40.0), 0)][..]));
    server.pass(16_000);
    server.asks("b", 1.0);
    assert_eq!(server.take(), Proposal { changes: None, awaits: Some(1) }, "promised, but not stored yet");
    server.resource.acknowledge(1);
    server.pass(16_000);
    server.asks("b", 4.0);
    let pending = server.take();
    assert_eq!(pending.awaits, None, "a total that is raised ahead, and a later horizon, need no waiting");
    assert_eq!(pending.changes.map(|changes| (changes.total.get(), changes.horizon.is_some())), Some((50.0, true)));
    server.asks("c", 50.0);
    assert_eq!(server.take().awaits, Some(3));
}

#[test]
fn full_resource_writes_only_horizons() {
    let mut server = keeper(fair(100.0));
    for id in ["a", "b", "c"] {
        server.asks(id, 100.0);
    }
    server.settle();
    let mut horizons = 0;
    for n in 0..100 {
        server.pass(3_000);
        server.asks(["a", "b", "c"][n % 3], 20.0 + (n * 37 % 101) as f64);
        let Proposal { changes, awaits } = server.take();
        assert_eq!(awaits, None, "no lease waits");
        if let Some(changes) = changes {
            assert_eq!((changes.total.get(), changes.horizon.is_some()), (100.0, true));
            server.resource.acknowledge(changes.number);
            horizons += 1;
        }
    }
    assert!(horizons <= 10, "{horizons} in ten half lease lengths");
}

#[test]
fn a_lease_that_ends_beyond_the_horizon_waits_for_it() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    server.pass(37_500);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, None, "its end is the horizon");
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    server.pass(37_501);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, Some(2));
    server.resource.acknowledge(1);
    server.pass(5_000);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, Some(2), "the second is not acknowledged yet");
}

#[test]
fn total_falls_with_a_horizon() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 80.0);
    server.settle();
    server.release(HolderKind::Client, "a", Some(server.leases["a"].token));
    server.leases.clear();
    server.asks("b", 8.0);
    assert_eq!(server.settle(), None);
    server.pass(31_000);
    server.asks("b", 8.0);
    let changes = server.settle().expect("half a lease length is over");
    assert_eq!((changes.total.get(), changes.horizon.is_some()), (20.5, true));
}

#[test]
fn high_water_mark_follows_horizons() {
    let mut server = keeper(fair(100.0));
    let mut floors = Vec::new();
    for n in 0..30 {
        server.asks("a", 40.0);
        let newest = server.leases["a"].token;
        floors
            .extend(server.settle().map(|changes| (n, newest.get() - changes.high_water_mark.expect("a floor").get())));
        server.pass(5_000);
    }
    assert_eq!(floors, [(0, 0), (7, 6), (14, 6), (28, 13)], "(refresh, number of leases granted since the mark)");
}

#[test]
fn high_water_mark_rises_before_ended_capacity_is_reused() {
    let mut server = keeper(fair(100.0));
    server.asks("other", 10.0);
    server.settle();
    server.resource.configure(Settings { lease: Millis(20_000), ..fair(100.0) });
    server.pass(5_000);
    server.asks("crashes", 90.0);
    let crashed = server.leases["crashes"].token;
    server.settle();
    server.pass(15_000);
    server.asks("other", 10.0);
    let horizon = server.settle().expect("half a lease length is over");
    assert!(horizon.high_water_mark <= Some(crashed), "nothing has ended");
    server.pass(10_000);
    server.resource.tick(server.now);
    server.asks("new", 50.0);
    let Proposal { changes: Some(changes), awaits } = server.take() else {
        panic!("the ended lease could be claimed from the next master")
    };
    assert_eq!(awaits, Some(changes.number));
    assert!(changes.high_water_mark > Some(crashed));
    server.resource.acknowledge(changes.number);
    server.pass(5_000);
    server.asks("new", 50.0);
    assert_eq!(server.take(), Proposal::default(), "only once");
}

#[test]
fn new_epoch_is_above_inherited_epochs() {
    let inherited = Inherited { newest: Some(Epoch(7)), ..Inherited::default() };
    let mut server =
        Server::with_options(ResourceOptions { epoch: Epoch(7), inherited: Some(inherited), ..options(fair(100.0)) });
    server.asks("a", 40.0);
    assert_eq!(server.take().changes.map(|changes| changes.epoch), Some(Epoch(7 + Inherited::EPOCHS_APART)));
}

#[test]
fn first_horizon_covers_inherited_leases() {
    let mut settings = fair(100.0);
    settings.lease = Millis(10_000);
    let inherited = Inherited {
        total: Amount::clamped(40.0),
        newest: Some(Epoch(7)),
        until: Millis(90_000),
        ..Inherited::default()
    };
    let mut server = Server::with_options(ResourceOptions { inherited: Some(inherited), ..options(settings) });
    server.asks("a", 40.0);
    let changes = server.take().changes.expect("a promise of this epoch");
    assert_eq!(changes.horizon, Some(ClusterTime(90_090)), "the total covers leases of earlier epochs, too");
    assert_eq!(changes.total.get(), 81.5625, "the inherited total, the 40, and a little room");
}

#[test]
fn outstanding_amount_of_a_child_node_is_promised() {
    let mut server = keeper(fair(100.0));
    let all = [slice(1, 80.0, 0)];
    server.node_asks("n", &all);
    server.settle();
    server.pass(4_000);
    server.send(Ask { outstanding: Some(Amount::clamped(105.0)), ..server.node_request("n", &all) });
    let total = server.settle().map(|changes| changes.total.get());
    assert_eq!(total, Some(105.0), "the total may exceed the capacity if more is held");
}

#[test]
fn unshared_capacity_is_promised() {
    for kind in [AlgorithmKind::NoAlgorithm, AlgorithmKind::Static] {
        let mut server = keeper(Settings::new(kind, Amount::clamped(50.0)));
        server.asks("a", 40.0);
        server.asks("b", 40.0);
        server.settle();
        assert_eq!(server.promised(), 90.0);
        server.asks("c", 1e15);
        server.asks("d", 1e15);
        assert!(server.settle().is_some());
        server.pass(10_000);
        server.asks("e", 1e15);
        assert_eq!(server.settle(), None, "the held amount exceeds the range of an amount");
    }
}
