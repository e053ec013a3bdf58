//! Parts of the state as registers that are written and read.

use std::sync::Arc;

use leaseway_core::{Amount, Assigned, Changes, ClusterTime, Epoch, HolderKind, Inherited, Load, Millis, Token};
use leaseway_history::{Operation, Value};

use crate::{
    log::command::{Command, KeptOverride},
    state::State,
    tests::cluster::{assigned, set_text},
};

/// Longer than any test.
const HORIZON: ClusterTime = ClusterTime(3_600_000);
const LEASE: Millis = Millis(60_000);

#[derive(Debug, Clone, Copy)]
pub(super) enum Register {
    Assignment(&'static str),
    Override(&'static str),
    /// The configuration in force.
    InForce,
    /// The promises of a resource, each of which follows the one before.
    Promised(&'static str),
    /// The effects of two commands of one proposal, which must never be apart.
    Twins,
}

pub(super) const REGISTERS: [Register; 8] = [
    Register::Assignment("x"),
    Register::Assignment("y"),
    Register::Override("o"),
    Register::Override("p.*"),
    Register::InForce,
    Register::Promised("q"),
    Register::Promised("s"),
    Register::Twins,
];

fn amount(value: u64) -> Amount {
    Amount::clamped(value as f64)
}

fn capacity_of(state: &State, holder: &str) -> Value {
    match state.assigned("r", HolderKind::Client, &holder.into())? {
        Assigned::Capacity(amount) => Some(amount.get() as u64),
        other => panic!("{other:?} was never assigned"),
    }
}

fn load(value: u64) -> Load {
    Load::Capacity(amount(value))
}

fn floor(epoch: Epoch, value: u64) -> Option<Token> {
    Token::new(Token::first(epoch).get() + value)
}

impl Register {
    /// Reads the value, and asserts that it comes from one write.
    pub(super) fn read(self, state: &State) -> Value {
        match self {
            Register::Assignment(holder) => capacity_of(state, holder),
            Register::Override(pattern) => {
                let mut of = state.overrides().iter().filter(|(of, _)| **of == *pattern);
                let (_, one) = of.next()?;
                assert!(of.next().is_none(), "two overrides of {pattern}");
                let value = one.by.parse().expect("a number was written");
                assert_eq!(one.capacity, load(value), "of two writes: {one:?}");
                Some(value)
            }
            Register::InForce => {
                let versions: Vec<u64> = state.configurations().map(|one| one.version).collect();
                assert!(versions.windows(2).all(|two| two[1] == two[0] + 1), "{versions:?}");
                state.configuration().and_then(|one| one.text.parse().ok())
            }
            Register::Promised(resource) => {
                let promises = state.promises(resource)?;
                let (epoch, _) = promises.newest()?;
                let value = promises.total().get() as u64;
                let record = promises.record(ClusterTime(0));
                assert_eq!((record.lease, record.counted_from), (Some(LEASE), floor(epoch, value)), "of two writes");
                assert_eq!(promises.until(), HORIZON, "of another write");
                Some(value)
            }
            Register::Twins => {
                let (one, other) = (capacity_of(state, "twin"), state.load("twin"));
                assert_eq!(other, one.map(load), "half of a proposal is there");
                one
            }
        }
    }

    /// The commands that write `value`, given that the register holds `found`. `anew`: use a later epoch if the
    /// register has epochs.
    pub(super) fn write(self, state: &State, found: Value, value: u64, anew: bool) -> (Operation, Vec<Command>) {
        let write = Operation::Write(Some(value));
        match self {
            Register::Assignment(holder) => (write, vec![assigned(holder, value as f64)]),
            Register::Override(pattern) => {
                let kept = KeptOverride {
                    capacity: load(value),
                    above: false,
                    from_unix_ms: 1,
                    until_unix_ms: u64::MAX,
                    by: value.to_string().into(),
                    why: "a test".into(),
                };
                (write, vec![Command::Override { pattern: pattern.into(), set: Some(Box::new(kept)) }])
            }
            Register::InForce => (write, vec![set_text(value.to_string())]),
            Register::Promised(resource) => {
                let newest = state.promises(resource).and_then(|promises| promises.newest());
                let (epoch, number, operation) = match newest {
                    Some((epoch, number)) if !anew => (epoch, number + 1, Operation::Exchange(found, Some(value))),
                    // Applied whatever earlier epochs have promised meanwhile.
                    Some((epoch, _)) => (Epoch(epoch.0 + Inherited::EPOCHS_APART), 1, write),
                    None => (Epoch(1), 1, write),
                };
                let changes = Changes {
                    epoch,
                    number,
                    total: amount(value),
                    horizon: Some(HORIZON),
                    lease: Some(LEASE),
                    counted_from: floor(epoch, value),
                    wants: None,
                    parts: Vec::new(),
                };
                (operation, vec![Command::Promises { resource: Arc::from(resource), changes }])
            }
            Register::Twins => {
                let load = Command::Load { resource: "twin".into(), load: Some(load(value)) };
                (write, vec![assigned("twin", value as f64), load])
            }
        }
    }
}
