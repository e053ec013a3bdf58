//! The calls that workers make, drawn from a seed.

use std::time::Duration;

use fastrand::Rng;

/// The longest answer that a call may have, in tokens.
const MAX_OUTPUT: u32 = 1000;
const PER_TOKEN: Duration = Duration::from_millis(2);
/// The time until the first token of an answer.
const FIRST_TOKEN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) at: Duration,
    pub(super) takes: Duration,
    /// The maximum cost in tokens: the prompt, and the longest answer.
    pub(super) most: u32,
    /// The real cost, known at the end.
    pub(super) used: u32,
}

/// The calls of each worker. They come at random, and the rates of workers are as 1 to 2 to 3 and so on.
pub(super) fn trace(workers: u32, rate: u32, length: Duration, seed: u64) -> Vec<Vec<Call>> {
    let mut random = Rng::with_seed(seed);
    let parts: u32 = (1..=workers).sum();
    let calls = |worker: u32| {
        let rate = f64::from(rate) * f64::from(worker) / f64::from(parts);
        let (mut at, mut calls) = (0.0, Vec::new());
        loop {
            at -= (1.0 - random.f64()).ln() / rate;
            if at >= length.as_secs_f64() {
                return calls;
            }
            calls.push(draw(Duration::from_secs_f64(at), &mut random));
        }
    };
    (1..=workers).map(calls).collect()
}

/// Most prompts and answers are short, and a few are long.
fn draw(at: Duration, random: &mut Rng) -> Call {
    let prompt = (100.0 * 20_f64.powf(random.f64())) as u32;
    let output = 1 + (f64::from(MAX_OUTPUT - 1) * random.f64().powi(2)) as u32;
    Call { at, takes: FIRST_TOKEN + PER_TOKEN * output, most: prompt + MAX_OUTPUT, used: prompt + output }
}

/// The amount that covers this percentage of the cost of all calls.
pub(super) fn amount(calls: &[Vec<Call>], percent: f64) -> i64 {
    let all: i64 = calls.iter().flatten().map(|call| i64::from(call.used)).sum();
    (all as f64 * percent / 100.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_repeats_with_its_seed_and_runs_out_of_the_amount() {
        let drawn = |seed| trace(4, 100, Duration::from_secs(50), seed);
        let calls = drawn(1);
        assert_eq!(calls, drawn(1));
        assert_ne!(calls, drawn(2));
        let number = |worker: usize| calls[worker].len() as f64;
        assert!((3.2..4.8).contains(&(number(3) / number(0))), "{} to {}", number(3), number(0));
        let all: u32 = calls.iter().flatten().map(|call| call.used).sum();
        assert_eq!(amount(&calls, 50.0), i64::from(all / 2));
        for call in calls.iter().flatten() {
            assert!(call.used <= call.most && call.at < Duration::from_secs(50), "{call:?}");
        }
    }
}
