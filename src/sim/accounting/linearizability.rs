//! A linearizability checker for registers. The tests of leaseway-raft and `leaseway-bench chaos` check with it the
//! reads and writes that they have made at real peers.
//!
//! When a call ends, the checker computes all possible orders of the concurrent calls (just-in-time linearization, Lowe
//! 2017). There are few, because no value is written twice.

use std::{collections::HashSet, fmt};

/// The value of a register; `None` if it is empty.
pub type Value = Option<u64>;

/// An operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Stores the value.
    Write(Value),
    Read(Value),
    /// Compare and swap: replaces the first value by the second, or has no effect.
    Exchange(Value, Value),
}

/// A call and its times, in any unit. Calls that certainly had no effect are left out.
#[derive(Clone, Copy, Debug)]
pub struct RegisterCall {
    pub register: usize,
    pub operation: Operation,
    pub asked: u64,
    /// `None`: the outcome is unknown, and the call may take effect later or never.
    pub answered: Option<u64>,
}

impl fmt::Display for RegisterCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegisterCall { register, operation, asked, answered } = self;
        write!(f, "register {register}: {operation:?} from {asked} to {answered:?}")
    }
}

/// A possible value of the register, and the concurrent calls that have taken effect by then.
type Possible = (Value, Vec<usize>);

/// Returns the first call whose answer no order explains, or `None` if the history is linearizable.
pub fn unexplained(calls: &[RegisterCall]) -> Option<RegisterCall> {
    let mut registers: Vec<usize> = calls.iter().map(|call| call.register).collect();
    registers.sort_unstable();
    registers.dedup();
    registers.into_iter().find_map(|register| {
        let of: Vec<RegisterCall> = calls.iter().copied().filter(|call| call.register == register).collect();
        unexplained_of_one(&useful(of))
    })
}

/// Drops writes of unknown outcome that no read has seen: they may never have taken effect, so they explain nothing.
fn useful(calls: Vec<RegisterCall>) -> Vec<RegisterCall> {
    let seen: HashSet<Value> = calls.iter().filter_map(|call| read(call.operation)).collect();
    let is_useful = |call: &RegisterCall| match call.operation {
        Operation::Write(value) | Operation::Exchange(_, value) => call.answered.is_some() || seen.contains(&value),
        Operation::Read(_) => call.answered.is_some(),
    };
    calls.into_iter().filter(is_useful).collect()
}

fn read(operation: Operation) -> Option<Value> {
    match operation {
        Operation::Read(value) | Operation::Exchange(value, _) => Some(value),
        Operation::Write(_) => None,
    }
}

fn unexplained_of_one(calls: &[RegisterCall]) -> Option<RegisterCall> {
    // At equal times, calls begin before others end. This allows more orders.
    let begins = calls.iter().enumerate().map(|(index, call)| (call.asked, false, index));
    let ends = calls.iter().enumerate().filter_map(|(index, call)| Some((call.answered?, true, index)));
    let mut events: Vec<_> = begins.chain(ends).collect();
    events.sort_unstable();
    let mut all: HashSet<Possible> = HashSet::from([(None, Vec::new())]);
    let mut under_way: Vec<usize> = Vec::new();
    for (_, is_end, index) in events {
        if !is_end {
            under_way.push(index);
            continue;
        }
        all = explained(calls, &under_way, all, index);
        if all.is_empty() {
            return Some(calls[index]);
        }
        under_way.retain(|other| *other != index);
        // An unanswered call that has taken effect in every possible order needs no further tracking.
        let is_settled = |one: &usize| calls[*one].answered.is_none() && all.iter().all(|(_, done)| done.contains(one));
        let settled: Vec<usize> = under_way.iter().copied().filter(is_settled).collect();
        under_way.retain(|one| !settled.contains(one));
        all = all.into_iter().map(|(value, done)| (value, without(done, &settled, index))).collect();
    }
    None
}

fn without(mut done: Vec<usize>, settled: &[usize], index: usize) -> Vec<usize> {
    done.retain(|one| *one != index && !settled.contains(one));
    done
}

/// All possible states in which the call at `index` has taken effect.
fn explained(calls: &[RegisterCall], under_way: &[usize], from: HashSet<Possible>, index: usize) -> HashSet<Possible> {
    let mut seen = from.clone();
    let mut left: Vec<Possible> = from.into_iter().collect();
    while let Some((value, done)) = left.pop() {
        for &next in under_way.iter().filter(|next| !done.contains(next)) {
            let after = match calls[next].operation {
                Operation::Write(written) => written,
                Operation::Read(found) if found == value => value,
                Operation::Exchange(found, written) if found == value => written,
                Operation::Read(_) | Operation::Exchange(..) => continue,
            };
            let mut with = done.clone();
            with.push(next);
            with.sort_unstable();
            if seen.insert((after, with.clone())) {
                left.push((after, with));
            }
        }
    }
    seen.retain(|(_, done)| done.contains(&index));
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, asked: u64, answered: impl Into<Option<u64>>) -> RegisterCall {
        RegisterCall { register: 0, operation: Operation::Write(Some(value)), asked, answered: answered.into() }
    }

    fn read(value: u64, asked: u64, answered: u64) -> RegisterCall {
        let value = (value > 0).then_some(value);
        RegisterCall { register: 0, operation: Operation::Read(value), asked, answered: Some(answered) }
    }

    fn exchange(from: u64, to: u64, asked: u64, answered: impl Into<Option<u64>>) -> RegisterCall {
        RegisterCall {
            operation: Operation::Exchange((from > 0).then_some(from), Some(to)),
            ..write(to, asked, answered)
        }
    }

    #[test]
    fn linearizable_histories_are_accepted() {
        for calls in [
            vec![read(0, 0, 1), write(1, 2, 3), read(1, 4, 5)],
            // During a write a read may return the old value and then the new one.
            vec![write(1, 0, 10), read(0, 1, 2), read(1, 3, 4)],
            // Two concurrent writes, in either order.
            vec![write(1, 0, 10), write(2, 0, 10), read(2, 11, 12)],
            vec![write(1, 0, 10), write(2, 0, 10), read(1, 11, 12)],
            // A write of unknown outcome takes effect later, or never.
            vec![write(1, 0, None), read(0, 5, 6), read(1, 7, 8)],
            vec![write(1, 0, None), read(0, 5, 6), write(2, 7, 8), read(2, 9, 10)],
            vec![write(1, 0, None), write(2, 3, 4), read(2, 5, 6), read(1, 7, 8)],
            vec![exchange(0, 1, 0, None), exchange(1, 2, 1, 4), read(2, 5, 6)],
            vec![exchange(0, 1, 0, 9), exchange(0, 2, 1, None), read(1, 10, 11)],
        ] {
            assert!(unexplained(&calls).is_none(), "{calls:?}");
        }
    }

    #[test]
    fn histories_that_are_not_linearizable_are_rejected() {
        for (calls, fault) in [
            (vec![write(1, 0, 1), read(0, 2, 3)], "lost write"),
            (vec![write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], "stale read"),
            (vec![write(1, 0, 10), read(1, 1, 2), read(0, 3, 4)], "a value is read, then the one before it"),
            (
                vec![write(1, 0, None), read(1, 1, 2), read(0, 3, 4)],
                "an unacknowledged write is read, then the empty register",
            ),
            (
                vec![write(1, 0, None), read(1, 1, 2), write(2, 3, 4), read(1, 5, 6)],
                "an unacknowledged write takes effect twice",
            ),
            (vec![read(1, 0, 1), write(1, 2, 3)], "read before its write"),
            (vec![exchange(0, 1, 0, 9), exchange(0, 2, 1, 8)], "two exchanges replace the same value"),
            (vec![exchange(0, 1, 0, None), exchange(1, 2, 1, 4), read(1, 5, 6)], "a replaced value is read"),
        ] {
            assert!(unexplained(&calls).is_some(), "{fault}: {calls:?}");
        }
    }

    #[test]
    fn registers_are_independent() {
        let other = |call: RegisterCall| RegisterCall { register: 1, ..call };
        assert!(unexplained(&[write(1, 0, 1), other(read(0, 2, 3)), read(1, 2, 3)]).is_none());
        let found = unexplained(&[write(1, 0, 1), other(write(2, 0, 1)), other(read(0, 2, 3))]);
        assert_eq!(found.map(|call| call.register), Some(1));
    }

    #[test]
    fn long_histories_are_checked_fast() {
        let calls =
            (1..5000).flat_map(|n| [write(n, 4 * n, (n % 7 > 0).then_some(4 * n + 6)), read(n, 4 * n + 1, 4 * n + 3)]);
        assert!(unexplained(&calls.collect::<Vec<_>>()).is_none());
    }
}
