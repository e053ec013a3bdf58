//! The stored state of a pool across failovers and idle times.

use super::*;
use crate::{
    pool::{NotedBalance, PoolMemory, PoolNotes},
    resource::Notes,
};

/// A pool, and peers that store its notes every second.
struct RememberedPool {
    server: PoolServer,
    memory: PoolMemory,
    /// All notes, in order.
    said: Vec<PoolNotes>,
}

/// The maximum number of entries per second.
const ENTRIES: usize = 64;
const BYTES: usize = 16 << 10;
/// More entries than any pool may have.
const ROOM: usize = 100_000;

impl RememberedPool {
    fn new(capacity: f64, parameters: &[(&str, &str)]) -> RememberedPool {
        let mut server = PoolServer::new(capacity, &[&[("free_key", "client_id")], parameters].concat());
        server.resource.keep_notes();
        RememberedPool { server, memory: PoolMemory::default(), said: Vec::new() }
    }

    fn say(&mut self, all: bool) {
        self.server.tick();
        if let Some(Notes::Pool(notes)) = self.server.resource.take_notes(self.server.now, ENTRIES, BYTES, all) {
            self.memory.apply(&notes, self.server.now, ROOM);
            self.said.push(notes);
        }
    }

    /// The clients ask every five seconds for this time, and report this usage and cost.
    fn serve(&mut self, ids: &[&str], seconds: u64, recharging: f64, cost: f64) {
        for second in 0..seconds {
            if second % 5 == 0 {
                for id in ids {
                    let wants = self.server.resource.assigned(HolderKind::Client, id).map_or(1.0, |_| 1e6);
                    self.server.reports(id, wants, recharging, cost);
                }
            }
            self.server.pass(1);
            self.say(false);
        }
    }

    /// The master is lost. After `seconds`, another one starts from the promises, which exceed the leases a little, and
    /// from the notes.
    fn fails_over(&mut self, seconds: u64) {
        let assignments = self.server.list(PoolFilter::Assigned);
        let settings = self.server.resource.settings().clone();
        let (now, lease) = (self.server.now, settings.lease);
        self.server.pass(seconds);
        let held = self.server.list(PoolFilter::Connected);
        let until = now.plus(lease);
        let total = held.iter().filter(|_| self.server.now < until).map(|(_, capacity)| capacity).sum::<f64>() * 1.02;
        let (total, newest) =
            (Amount::clamped(total).min(self.server.resource.total()), Some(crate::types::Epoch(1 << 41)));
        let inherited = Inherited { total, newest, until, ..Inherited::default() };
        let epoch = crate::types::Epoch(1 << 42);
        let assigned: Vec<_> = assignments
            .iter()
            .filter_map(|(id, _)| Some((id, self.server.resource.assigned(HolderKind::Client, id)?)))
            .map(|(id, assigned)| (HolderKind::Client, Arc::from(id.as_str()), assigned))
            .collect();
        let options =
            ResourceOptions { epoch, since: self.server.now, inherited: Some(inherited), ..options(settings) };
        self.server.resource = Resource::new(options);
        self.server.resource.remember_assignments(assigned);
        self.server.resource.keep_notes();
        self.server.resource.restore_pool(self.server.now, self.memory.notes(self.server.now));
        self.server.tick();
        self.server.resource.audit_pool().expect("right books");
    }

    /// These clients ask again and show their leases.
    fn come_back(&mut self, ids: &[&str]) {
        for id in ids {
            let wants = self.server.resource.assigned(HolderKind::Client, id).map_or(1.0, |_| 1e6);
            self.server.asks(id, wants);
        }
    }

    fn member(&self, id: &str) -> crate::pool::PoolMember {
        self.server.resource.pool_member(HolderKind::Client, id).expect("it is known")
    }
}

fn near(found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error, "{found}, expected {expected}");
}

#[test]
fn balance_survives_a_failover() {
    let mut pool = RememberedPool::new(2.0, &[]);
    pool.serve(&["a"], 600, 0.0, 0.0);
    pool.server.release("a");
    for _ in 0..60 {
        pool.server.pass(1);
        pool.say(false);
    }
    // No capacity is held, and the pool is dropped.
    pool.fails_over(3540);
    assert_eq!(pool.server.report().remembered, 1);
    pool.server.asks("a", 1.0);
    near(pool.member("a").balance, 220.7277, 1.0);
}

#[test]
fn cost_survives_a_failover_and_is_billed_once() {
    let mut pool = RememberedPool::new(10.0, &[]);
    pool.server.assign("p", 4.0).expect("fits");
    pool.serve(&["p"], 100, 0.5, 7.0);
    let before = pool.member("p");
    assert_eq!(before.request_cost, 133.0, "it had no capacity at its first request");
    pool.server.event_kinds();
    pool.fails_over(2);
    pool.come_back(&["p"]);
    let after = pool.member("p");
    near(after.time_cost, before.time_cost + 8.0, 1.0);
    let sixteenth = (before.time_cost + before.request_cost) / 16.0;
    near(after.request_cost, 133.0, sixteenth);
    pool.serve(&["p"], 70, 0.5, 7.0);
    pool.server.release("p");
    let events = pool.server.events();
    let last = events.iter().filter(|event| event.kind == PoolEventKind::Disconnected).collect::<Vec<_>>();
    let [Some(bill)] = last.iter().map(|event| event.client.as_ref()).collect::<Vec<_>>()[..] else {
        panic!("{last:?}")
    };
    near(bill.time_cost, 4.0 * 172.0, 1.0);
    near(bill.request_cost, 231.0, sixteenth);
    assert!(bill.is_priority);
}

#[test]
fn repeated_report_to_the_next_master_is_charged_once() {
    let mut pool = RememberedPool::new(10.0, &[]);
    pool.server.assign("p", 4.0).expect("fits");
    pool.server.reports("p", 4.0, 0.5, 0.0);
    let request = pool.server.request("p", 4.0);
    let report = |cost| {
        let usage = Usage { recharging: 0.5, request_cost: Amount::clamped(cost), interval: None };
        Ask { pool_fields: Some(Box::new(PoolFields { key: None, usage: Some(usage) })), ..request.clone() }
    };
    pool.server.send(report(5.0));
    pool.say(true);
    // The answer is lost with the master. The client repeats its report with the usage since.
    pool.fails_over(1);
    pool.server.send(report(7.0));
    assert_eq!(pool.member("p").request_cost, 7.0);
}

#[test]
fn total_survives_a_failover() {
    let parameters = [("max_capacity", "20"), ("raise_tc_s", "60")];
    let mut pool = RememberedPool::new(10.0, &parameters);
    let ids: Vec<String> = (0..15).map(|n| format!("c{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    while pool.server.report().total.get() < 15.5 {
        pool.serve(&ids, 5, 0.0, 0.0);
    }
    let before = pool.server.report().total.get();
    assert_eq!(pool.server.report().connected.get(), 15.0);
    pool.fails_over(2);
    near(pool.server.report().total.get(), before, before / 100.0);
    for id in &ids {
        pool.server.release(id);
    }
    pool.say(true);
    pool.fails_over(3600);
    near(pool.server.report().total.get(), before, before / 100.0);
}

#[test]
fn absent_client_is_billed_at_lease_end() {
    let mut pool = RememberedPool::new(10.0, &[]);
    pool.server.assign("p", 4.0).expect("fits");
    pool.server.assign("q", 4.0).expect("fits");
    pool.serve(&["p", "q"], 100, 0.5, 1.0);
    // The client has left, but no event has reported it.
    pool.server.release("p");
    pool.server.event_kinds();
    pool.fails_over(1);
    let left = |server: &mut PoolServer| {
        let gone = server.events().into_iter().filter(|event| event.kind == PoolEventKind::Disconnected);
        gone.filter_map(|event| event.client).map(|client| (client.id.to_string(), client)).collect::<Vec<_>>()
    };
    assert!(left(&mut pool.server).is_empty());
    for _ in 0..70 {
        pool.server.pass(1);
        pool.say(false);
    }
    let bills = left(&mut pool.server);
    assert_eq!(bills.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["p", "q"]);
    for (id, bill) in bills {
        near(bill.request_cost, 20.0, 2.0);
        assert!(bill.time_cost >= 400.0 && bill.is_priority, "{id}: {bill:?}");
    }
    pool.say(true);
    assert!(pool.memory.is_empty(), "no client is connected any more: {:?}", pool.memory);
}

#[test]
fn remembered_entries_are_bounded() {
    let mut pool = RememberedPool::new(50.0, &[("max_remembered", "3")]);
    for n in 0..50 {
        pool.server.reports(&format!("c{n:02}"), 1.0, 0.0, f64::from(n));
        pool.say(false);
        assert!(pool.memory.len() <= 6, "three of each kind: {:?}", pool.memory);
    }
    for _ in 0..100 {
        pool.server.pass(1);
        pool.say(false);
    }
    let kept: Vec<_> = pool.memory.notes(pool.server.now).balances.into_iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(kept, ["c47", "c48", "c49"], "the largest");
    for notes in &pool.said {
        assert!(notes.balances.len() + notes.costs.len() <= ENTRIES + 1);
    }
}

#[test]
fn pool_memory_adds_no_entries_without_room() {
    let mut memory = PoolMemory::default();
    let balance = |id: &str| (Arc::from(id), NotedBalance::Away(5.0));
    let notes = PoolNotes { balances: ["a", "b", "c"].map(balance).into(), ..PoolNotes::default() };
    memory.apply(&notes, Millis(0), 2);
    assert_eq!(memory.len(), 2);
    memory.apply(&notes, Millis(0), 0);
    assert_eq!(memory.len(), 2, "known balances are kept");
    let gone = PoolNotes { balances: vec![(Arc::from("a"), NotedBalance::None), balance("c")], ..PoolNotes::default() };
    memory.apply(&gone, Millis(0), 0);
    assert_eq!(memory.notes(Millis(0)).balances, [balance("b"), balance("c")]);
    assert!(!memory.is_worthless(Millis(0)));
}

#[test]
fn lost_notes_are_written_again() {
    let mut pool = RememberedPool::new(10.0, &[]);
    pool.serve(&["a", "b"], 20, 0.0, 1.0);
    pool.memory = PoolMemory::default();
    pool.server.resource.note_anew();
    pool.say(false);
    assert!(pool.said.last().expect("something").anew);
    assert_eq!(pool.memory.len(), 4);
    pool.fails_over(1);
    pool.come_back(&["a"]);
    near(pool.member("a").balance, 25.0, 2.0);
}

/// Values that change only with time need no notes.
#[test]
fn idle_clients_need_few_notes() {
    let mut pool = RememberedPool::new(10.0, &[]);
    pool.serve(&["a", "b", "c"], 10, 0.0, 0.0);
    pool.said.clear();
    pool.serve(&["a", "b", "c"], 3600, 0.0, 0.0);
    let entries: usize = pool.said.iter().map(|notes| notes.balances.len() + notes.costs.len()).sum();
    assert!(pool.said.len() <= 121 && entries <= 6, "{} times, {entries} entries", pool.said.len());
    pool.fails_over(1);
    pool.come_back(&["b"]);
    near(pool.member("b").balance, 3611.0, 1.0);
}

/// Stored values differ from the true ones by at most a sixteenth, or half a minute.
#[test]
fn remembered_balances_are_within_tolerance() {
    let mut pool = RememberedPool::new(20.0, &[]);
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..4000 {
        let id = format!("c{}", random(30));
        match random(10) {
            0 => pool.server.release(&id),
            1..=8 => drop(pool.server.reports(&id, 1.0, 0.0, if random(3) == 0 { random(20) as f64 } else { 0.0 })),
            _ => pool.server.pass(random(20)),
        }
        pool.server.pass(1);
        pool.say(false);
        if round % 50 != 0 {
            continue;
        }
        let mut noted = Resource::new(options(pool.server.resource.settings().clone()));
        noted.restore_pool(pool.server.now, pool.memory.notes(pool.server.now));
        let now = now_at(pool.server.now);
        for member in pool.server.resource.pool_members(PoolFilter::Connected, None, usize::MAX).members {
            one(&mut noted, now, Request::Ask(ask(&member.id, 1.0, None)));
            let found = noted.pool_member(HolderKind::Client, &member.id).expect("it has just asked").balance;
            // Thirty seconds of growth, usage of less than a sixteenth, and one second until the note is written.
            let error = member.balance / 16.0 + 31.0;
            assert!((found - member.balance).abs() <= error, "{round}: {found} of {member:?}");
        }
    }
}
