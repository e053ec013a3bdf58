#!/usr/bin/env python3
"""Shows that each conformance case can fail: breaks one rule of the Rust client at a time, and runs its case.

Run it in a clean checkout: bench/conform/mutants.py [CASE ...]. It edits files of src/client and restores them.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SESSION, STATE, LEASE = "session.rs", "session/resource_state.rs", "session/lease.rs"
ROUTE, PACE, WIRE = "session/route.rs", "session/pace.rs", "transport/wire.rs"
BUCKET, GAUGE = "limiter/bucket.rs", "limiter/waiting/gauge.rs"
BUDGET, SHARED = "limiter/budget.rs", "handles/shared.rs"
STREAM, ASKER = "session/stream.rs", "handles/asker.rs"
JOINT, LIMITS, BUDGETS = "limiter/waiting/joint.rs", "handles/limits.rs", "handles/limits/budgets.rs"

# Case, file, text, and what replaces it.
MUTANTS = [
    (1, WIRE, "priority: Some(ask.demand.priority)", "priority: None"),
    (2, SESSION, "{ now.plus(MIN_REQUEST_GAP) } else { refresh }", "{ refresh } else { end }"),
    (3, WIRE, "token: lease.token,\n        remaining_ms", "token: lease.token.map(|token| token + 1),\n        remaining_ms"),
    (4, STATE, "self.safe.map_or(Capacity::NONE, Capacity::safe)", "Capacity::NONE"),
    (5, LEASE, "if amount < 0.0 { Capacity::UNLIMITED }", "if amount < -1e9 { Capacity::UNLIMITED }"),
    (6, STATE, "Mode::Pessimistic => Capacity::NONE", "Mode::Pessimistic => Capacity::of(1.0)"),
    (7, STATE, "Capacity::of(self.demand.amount())", "Capacity::NONE"),
    (8, SESSION, "filter(|lease| has.is_none() && lease.token.is_some())", "filter(|_| false)"),
    (9, WIRE, "remaining_ms.map_or_else(", "remaining_ms.filter(|_| false).map_or_else("),
    (10, WIRE, "|| i128::from(expiry_time) * 1000 -", "|| 3_600_000 + i128::from(expiry_time) * 1000 -"),
    (11, SESSION, "if shrank && given.token.is_some()", "if shrank && given.token.is_none()"),
    (12, SESSION, "entry.named_until.is_some_and(|end| end <= now)", "entry.named_until.is_some_and(|_| false)"),
    (13, WIRE, "lease.capacity.filter(|capacity| capacity.is_finite())?", "lease.capacity?"),
    (14, STREAM, "Some(lease) => self.pace.refresh(lease.refresh, lease.end.since(now), &mut self.rng)",
        "Some(_) => MIN_REQUEST_GAP"),
    (15, SESSION, "if self.in_flight.is_some() || now < self.pause_until", "if now < self.pause_until"),
    (16, SESSION, "resources_per_request: settings.resources_per_request.max(1)", "resources_per_request: 1"),
    (17, SESSION, "if urgent {", "if urgent && entry.lease.is_none() {"),
    (18, SESSION, "is_none_or(|asked| demand.is_urgent(asked))", "is_none_or(|_| true)"),
    (19, SESSION, "let token = entry.lease.and_then(|lease| lease.token);", "let token = entry.lease.and(None);"),
    (20, SHARED, "for slot in opened.values() {\n            state.report_last", "for slot in opened.values().take(1) {\n            state.report_last"),
    (21, SESSION, "self.leaving.retain(|_, entry| entry.lease.is_some_and(|lease| lease.is_live(now)));", ""),
    (22, SESSION, "if let Some(entry) = self.entries.get_mut(id) {\n            entry.schedule(soon);",
        "if let Some(entry) = self.entries.get_mut(id) {\n            let _ = soon;"),
    (23, ROUTE, "self.target = master.into();", ""),
    (24, SESSION, "            self.request_failed(now, &in_flight, longest);\n        }\n        true",
        "            let _ = longest;\n        }\n        true"),
    (25, ROUTE, "|| self.redirects > MAX_REDIRECTS", ""),
    (26, ROUTE, "self.tried = (self.tried + 1) % self.endpoints.len();", ""),
    (27, ROUTE, "self.tried = (self.tried + 1) % self.endpoints.len();", ""),
    (28, PACE, "deadline: Millis(3_000)", "deadline: Millis(300_000)"),
    (29, SESSION, "self.route.learn(peers);", "let _ = peers.into_iter().count();"),
    (30, PACE, ".max(MIN_REQUEST_GAP.0 as f64), 0.5", ".clamp(1.0, 50.0), 0.5"),
    (31, SESSION, "if self.in_flight.is_some() ||", "if self.in_flight.is_some() || self.failures > 2 ||"),
    (32, STATE, "capacity: Capacity::NONE, basis: Basis::Unknown", "capacity: Capacity::of(10.0), basis: Basis::Unknown"),
    (33, BUCKET, "self.rate.saturating_mul(u128::from(passed))", "self.rate.saturating_mul(u128::from(passed) * 2)"),
    (34, BUCKET, "const SMOOTH_SECONDS: f64 = 0.020", "const SMOOTH_SECONDS: f64 = 3.0"),
    (35, LEASE, "Capacity(amount.max(0.0))", "Capacity(amount.abs())"),
    (36, LEASE, "now < self.end", "now < self.end.plus(Millis(60_000))"),
    (37, GAUGE, "if in_use > self.whole() {", "if in_use > self.whole() + 1 {"),
    (38, WIRE, "(beyond > 0.0).then_some(beyond)", "(beyond > 1e9).then_some(beyond)"),
    (39, SHARED, "if slot.handles > 0 {", "if slot.handles > 1 {"),
    (40, WIRE, "amount: Some(spent.spent),", "amount: Some(spent.spent / 2.0),"),
    (41, BUDGET, "Sum::from(amount) <= self.uncommitted(now)", "self.uncommitted(now) > Sum::ZERO"),
    (42, BUDGET, "        if covered {\n", "        if covered || amount > self.allowance {\n"),
    (43, BUDGET, "        now < self.until\n", "        now < self.until.plus(Millis(60_000))\n"),
    (44, WIRE, "ask.has.or(ask.had).as_ref()", "ask.has.as_ref()"),
    (45, BUDGET, "self.period.map(|period| period.start) != Some(budget.period.start)", "self.period.is_none()"),
    (46, BUDGET, "self.incarnation = fresh();", "let _ = fresh();"),
    (47, "handles/spender.rs", "BudgetBook::new(Millis(0), fastrand::u64(1..))", "BudgetBook::new(Millis(0), 7)"),
    (48, SESSION, "if incarnation(&entry.demand) != ", "if incarnation(&entry.demand).is_none() && Some(0) != "),
    (49, SHARED, "if opened.is_budget() {", "if opened.is_budget() && opened.wants(now).amount < 0.0 {"),
    (50, BUDGET, "if waiting > 0.0 { first } else { refused }", "first.min(waiting)"),
    (51, ASKER, "self.renews_by_stream && renews_by_stream", "self.renews_by_stream || renews_by_stream"),
    (52, STREAM, "lease.end = in_flight.sent.plus(usable_length(", "let _ = in_flight.sent.plus(usable_length("),
    (53, STREAM, "lease.end = in_flight.sent.plus(usable_length(", "lease.end = now.plus(usable_length("),
    (54, STREAM, "&& self.asked.as_ref().is_some_and(|asked| self.demand.is_same(asked))", ""),
    (55, STREAM, "self.note_answer(id, false);\n            self.keep_lease(now, id);",
        "self.note_answer(id, true);\n            self.keep_lease(now, id);"),
    (56, STREAM, "is_taken && !is_cut", "is_taken || is_cut"),
    (57, STREAM, "if entry.named_until.is_some_and(|end| end <= now)", "if entry.named_until.is_some_and(|_| false)"),
    (58, STREAM, "self.stream.open.take().filter(|open| open.next == 1)",
        "self.stream.open.take().filter(|open| open.next == 0)"),
    (59, STREAM, "self.stream.pause(now, self.route.target(), PAUSE_MAX);", ""),
    (60, ASKER, "let mastership = answer.mastership.take();\n    if",
        "let mastership = answer.mastership.take().filter(|_| false);\n    if"),
    (61, STREAM, "if reply.restart {", "if reply.restart && open.next == 0 {"),
    (62, ASKER, "if answer.sequence != sequence {", "if answer.sequence > sequence {"),
    (63, PACE, "deadline: Millis(3_000)", "deadline: Millis(300_000)"),
    (64, ASKER, "self.stream.take().filter(|open| open.number == request.stream)", "self.stream.take()"),
    (65, "limiter/joint.rs", "Ok(()) if passes => limits", "Ok(()) => limits"),
    (66, LIMITS, "of_kind.nth(place)", "of_kind.next()"),
    (67, JOINT, "all.set_wakers(&keys, Some(waker));", "all.set_wakers(&keys, None);"),
    (68, JOINT, "order.sort_by_key(|&at| parts[at].0.borrowed().rank());", ""),
    (69, JOINT, "all.set_wakers(&keys, None);\n                all.0.iter_mut().zip(keys)",
        "all.set_wakers(&keys, None);\n                all.0.iter_mut().zip(keys).take(0)"),
    (70, JOINT, "all.set_wakers(&keys, None);\n                all.0.iter_mut().zip(keys)",
        "all.set_wakers(&keys, None);\n                all.0.iter_mut().zip(keys).take(0)"),
    (71, LIMITS, "amounts.give_back_and_want();", "drop(self.budgets.keep(amounts));"),
    (72, BUDGETS, "for_each(|(_, reservation)| _ = reservation.settle_amount(Amount::ZERO))", "for_each(drop)"),
    (73, BUDGETS, "taken.give_back_and_want();\n            consume", "std::mem::forget(taken);\n            consume"),
    (74, STREAM, "if !self.is_asked_by(&in_flight, id) {", "if false {"),
]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def build(what):
    built = run("cargo", "build", *what)
    return built.returncode == 0, built.stderr


def main():
    only = {int(number) for number in sys.argv[1:]}
    ok, said = build(["-p", "leaseway-bench"])
    assert ok, said
    survived = []
    for case, name, text, replacement in MUTANTS:
        if only and case not in only:
            continue
        path = ROOT / "src/client" / name
        original = path.read_text()
        if text not in original or text == replacement:
            print(f"{case:>3}  stale: {name} does not have `{text}`", flush=True)
            survived.append(case)
            continue
        path.write_text(original.replace(text, replacement))
        try:
            ok, said = build(["-p", "leaseway-client", "--features", "transport", "--example", "conform"])
            if not ok:
                print(f"{case:>3}  does not compile:\n{said[-2000:]}", flush=True)
                survived.append(case)
                continue
            target = ROOT / "target/debug"
            judged = run(target / "leaseway-bench", "conform", "--only", str(case), "--", target / "examples/conform")
            is_killed = judged.returncode != 0
            why = next((line for line in judged.stdout.splitlines() if "FAIL" in line), "")
            print(f"{case:>3}  {'killed' if is_killed else 'SURVIVED'}  {why[5:]}", flush=True)
            if not is_killed:
                survived.append(case)
        finally:
            path.write_text(original)
    print(f"{len(survived)} survived: {survived}" if survived else "all mutants were killed")
    return bool(survived)


sys.exit(main())
