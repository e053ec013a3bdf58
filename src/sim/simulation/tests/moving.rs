//! The capacity of clients with changing wants after a change of master, for each kind of client.

use super::*;
use crate::scenario::ClientKind;

/// The time of the change of master.
const CHANGE: u64 = 90;
/// Seconds after the change at which to measure.
const AFTER: [u64; 7] = [0, 5, 10, 20, 35, 60, 85];
const SEEDS: std::ops::Range<u64> = 1..25;

/// A planned transfer takes some tenths of a second. The loss of a killed master has to be detected first.
const TRANSFER: Between = Between { least: Millis(300), most: Millis(300) };
const KILL: Between = Between { least: Millis(3_000), most: Millis(3_000) };

#[derive(Debug, Clone, Copy)]
enum Who {
    Clients(ClientKind),
    /// Clients of four child nodes.
    BelowNodes,
}

fn moving(who: Who, back: Between) -> Plan {
    scenario("moving", |scenario| {
        scenario.events[0].what = Fault::LoseMaster { node: Some("root".into()), back: Some(back) };
        let root = &mut scenario.nodes[0];
        match who {
            Who::Clients(speaks) => root.clients[0].kind = speaks,
            Who::BelowNodes => {
                let clients = vec![ClientSpec { count: 3, ..root.clients.remove(0) }];
                let leaf =
                    NodeSpec { name: "leaf".into(), parent: Some("root".into()), times: 4, clients, ..root.clone() };
                scenario.nodes.push(leaf);
            }
        }
    })
}

/// The capacity of all clients at the times of [`AFTER`], relative to the half minute before the change. Mean over the
/// seeds.
fn had(who: Who, back: Between) -> [f64; AFTER.len()] {
    let plan = moving(who, back);
    let mut sums = [0.0; AFTER.len()];
    for seed in SEEDS {
        let figures = plan
            .run(seed, RunOptions { curve: true, ..RunOptions::default() })
            .unwrap_or_else(|broken| panic!("{broken:?}"));
        let at = |second: u64| {
            let point = figures.curve.iter().find(|point| point.at == Millis(second * 1000));
            point.expect("a point a second").had
        };
        let before = (CHANGE - 30..CHANGE).map(at).sum::<f64>() / 30.0;
        for (sum, after) in sums.iter_mut().zip(AFTER) {
            *sum += at(CHANGE + after) / before / SEEDS.count() as f64;
        }
    }
    sums
}

/// Clients keep their capacity, as measured after their second refresh. `Silent` clients never name their leases. They
/// are not measured 60 s after the change, because their leases from before the change expire around that time.
#[test]
fn clients_of_every_kind_keep_their_capacity_after_a_change_of_master() {
    let all = &[2, 3, 4, 5, 6][..];
    for (who, times) in [
        (Who::Clients(ClientKind::Leaseway), all),
        (Who::Clients(ClientKind::Echoes), all),
        (Who::Clients(ClientKind::Doorman), all),
        (Who::BelowNodes, all),
        (Who::Clients(ClientKind::Silent), &[2, 3, 4, 6]),
    ] {
        for (back, bound) in [(TRANSFER, 0.9), (KILL, 0.85)] {
            let had = had(who, back);
            let least = times.iter().map(|at| had[*at]).fold(f64::INFINITY, f64::min);
            assert!(least >= bound, "{who:?}, no master for {:?}: {had:.2?}", back.least);
        }
    }
}
