//! Budgets: clients' own books never exceed the amount, through lost masters and crashed clients.

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_client::Client;
use leaseway_proto::doorman::GetCapacityRequest;

use crate::harness::{
    binary,
    config::ConfigFile,
    doorman::entry,
    foreign,
    peers::Peers,
    process::leaseway,
    slots::ServerSlot,
    wait::{eventually, runtime},
};

const AMOUNT: u64 = 20_000;

fn config() -> ConfigFile {
    ConfigFile::new(&format!(
        "resources:
- identifier_glob: \"*\"
  capacity: {AMOUNT}
  algorithm:
    kind: BUDGET
    lease_length: 10
    refresh_interval: 1
    parameters: {{period: none, slice_share: 0.1}}
"
    ))
}

/// A client that spends one to five units at a time, and adds them up.
struct Spender {
    client: Client,
    spent: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Spender {
    fn start(peers: &Peers, id: &str) -> Spender {
        let _inside = runtime().enter();
        let client = Client::builder().endpoints(peers.endpoints()).id(id).build().unwrap();
        let budget = client.budget("tokens").unwrap();
        let (spent, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (book, stop) = (Arc::clone(&spent), Arc::clone(&stopped));
        runtime().spawn(async move {
            for amount in (1..=5).cycle() {
                if stop.load(Ordering::SeqCst) || budget.spend(amount as f64).await.is_err() {
                    return;
                }
                book.fetch_add(amount, Ordering::SeqCst);
                if amount == 5 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        });
        Spender { client, spent, stopped }
    }
}

#[test]
fn a_budget_is_spent_once_through_lost_masters_and_crashed_clients() {
    let mut peers = Peers::start(3, config(), &[]);
    let mut spenders: Vec<Spender> = (0..4).map(|n| Spender::start(&peers, &format!("spender-{n}"))).collect();
    let spent = |spenders: &[Spender]| -> u64 {
        let spent = spenders.iter().map(|spender| spender.spent.load(Ordering::SeqCst)).sum();
        assert!(spent <= AMOUNT, "{spent} spent");
        spent
    };
    for part in [4_000, 8_000] {
        eventually("more is spent", || (spent(&spenders) > part).then_some(()));
        let master = peers.master();
        peers.kill(master);
        eventually("spending goes on", || (spent(&spenders) > part + 2_000).then_some(()));
        peers.run(master, &[]);
    }
    // One client crashes, and comes back under its name. Another one leaves.
    spenders[0].stopped.store(true, Ordering::SeqCst);
    spenders[0].client.abandon();
    spenders.push(Spender::start(&peers, "spender-0"));
    spenders[1].stopped.store(true, Ordering::SeqCst);
    let leaving = spenders[1].client.clone();
    runtime().block_on(leaving.close());
    let mut before = 0;
    let all = eventually("nothing more can be spent", || {
        let now = spent(&spenders);
        std::thread::sleep(Duration::from_secs(4));
        let moved = std::mem::replace(&mut before, now) != now;
        (!moved && now > AMOUNT / 2).then_some(now)
    });
    // Two masters were lost, and a client with its slice.
    assert!(all as f64 >= AMOUNT as f64 * 0.90, "{all} of {AMOUNT} spent");
    let book = |spender: &Spender| spender.spent.load(Ordering::SeqCst) as f64;
    eventually("the export is what clients have spent", || {
        let exported = exported(&peers);
        let of = |holder: &str| exported.get(holder).copied().unwrap_or_default();
        let is_same = |n: usize| of(&format!("spender-{n}")) == book(&spenders[n]);
        let of_both = book(&spenders[0]) + book(&spenders[4]);
        // The last reports of the process that crashed, and of the one that left, may be missing.
        let crashed = of("spender-0") <= of_both && of("spender-0") >= book(&spenders[4]);
        let left = of("spender-1") > 0.0 && of("spender-1") <= book(&spenders[1]);
        eprintln!("exported {exported:?}, spent {:?}", spenders.iter().map(book).collect::<Vec<_>>());
        ([2, 3].into_iter().all(is_same) && crashed && left).then_some(())
    });
    // A client that cannot report gets nothing, and is told why.
    let plain = GetCapacityRequest {
        client_id: Some("plain".into()),
        resource: vec![entry("tokens", 10.0)],
        ..GetCapacityRequest::default()
    };
    let answer = peers.doorman(peers.master()).get(plain).unwrap();
    assert!(answer.response.is_empty(), "{answer:?}");
    assert_eq!(answer.problem[0].reason(), "needs_report");
}

/// What each holder has spent, as a master that did not see all of it exports it.
fn exported(peers: &Peers) -> BTreeMap<String, f64> {
    let output =
        leaseway(&["usage", "export", "tokens", "--format", "jsonl", "--server", &peers.endpoints().join(",")]);
    let rows = output.stdout;
    let row = |line: &str| -> (String, f64) {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        (row["holder"].as_str().unwrap().to_owned(), row["spent"].as_f64().unwrap())
    };
    rows.lines().map(row).collect()
}

/// Reserves 40 of each of two budgets, uses up to 40 and settles, until neither grants more.
async fn reserve_and_settle(client: Client, first: usize) -> [u64; 2] {
    let budgets = ["tokens", "cents"].map(|id| client.budget(id).unwrap());
    let limits = client.limits([budgets[first].of(40.0), budgets[1 - first].of(40.0)]);
    let mut spent = [0; 2];
    for used in (20..=40_u64).step_by(5).cycle() {
        let reserved = tokio::time::timeout(Duration::from_secs(5), limits.reserve());
        let Ok(reserved) = reserved.await else { break };
        reserved.unwrap().settle(&[used, 40]).unwrap();
        spent[first] += used;
        spent[1 - first] += 40;
    }
    client.close().await;
    spent
}

#[test]
fn several_budgets_are_taken_at_once_in_any_order_and_never_overspent() {
    let peers = Peers::start(1, config(), &[]);
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let _inside = runtime().enter();
            let client = Client::builder().endpoints(peers.endpoints()).id(format!("client-{n}")).build().unwrap();
            runtime().spawn(reserve_and_settle(client, n % 2))
        })
        .collect();
    let spent = clients.into_iter().map(|client| runtime().block_on(client).unwrap());
    let all = spent.fold([0; 2], |all, spent| [all[0] + spent[0], all[1] + spent[1]]);
    assert!(all.iter().all(|spent| *spent <= AMOUNT), "{all:?} spent");
    // Both end when the first of them has less than 40 left for each client.
    assert!(all.iter().any(|spent| *spent as f64 >= AMOUNT as f64 * 0.95), "{all:?} of {AMOUNT} spent");
}

/// The same calls spend an amount by a budget, and by counters in Redis. The columns are those of `bench/budgets.rs`.
#[test]
#[cfg_attr(not(redis), ignore = "needs LEASEWAY_TEST_REDIS")]
fn a_budget_is_not_overspent_where_counters_are() {
    let _slot = ServerSlot::take();
    let mut command = Command::new(binary::bench());
    command.args(["budgets", "--seconds", "10", "--reps", "1"]).arg("--server").arg(binary::path());
    let output = command.arg("--redis").arg(foreign::path("LEASEWAY_TEST_REDIS")).output().unwrap();
    let log = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(output.status.success(), "{log}");
    let row = log.lines().find(|line| line.starts_with("| spent, % of the amount")).unwrap();
    let spent: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    let [budget, reserved, added, flushed] = spent[..] else { panic!("four systems in {log}") };
    assert!((50.0..=100.0).contains(&budget) && (50.0..=100.0).contains(&reserved), "{log}");
    // Calls that are under way when the count reaches the amount exceed it.
    assert!(added > 100.0 && flushed > 100.0, "{log}");
}
