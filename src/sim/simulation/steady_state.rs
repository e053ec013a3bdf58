//! The check at the end of runs with limiters: all clients have their due, on average. Limiters estimate their wants
//! from random arrivals, so these wants never settle, and neither do the dues of all clients. The check therefore
//! compares means over the second half of the quiet period.

use leaseway_client::limiter::Window;
use leaseway_core::{
    resource::invariant::Violation,
    types::{Amount, Millis},
};

use crate::{
    client::{
        Client, ClientMachine,
        limiter::{CallerCounts, LimiterClient},
    },
    simulation::Simulation,
};

/// Relative tolerance. Clients send changes of wants by more than a tenth immediately, and smaller ones with the next
/// refresh. The largest deviation in 260 runs of the built-in scenarios was 7 %.
const TOLERANCE: f64 = 0.1;

pub(crate) struct SteadyState {
    from: Millis,
    seconds: f64,
    /// Empty before the measurement begins.
    clients: Vec<ClientAverages>,
}

/// Sums over all seconds, for one client.
struct ClientAverages {
    due: f64,
    had: f64,
    limiter: Option<LimiterAverages>,
}

struct LimiterAverages {
    window: Window,
    asked: f64,
    /// The burst when the measurement began.
    burst: f64,
    before: CallerCounts,
    served: CallerCounts,
}

impl ClientAverages {
    fn new(client: &Client) -> ClientAverages {
        let limiter = match &client.machine {
            ClientMachine::Limiter(limiter) => Some(LimiterAverages::new(limiter)),
            ClientMachine::Session(_) | ClientMachine::Legacy(_) | ClientMachine::Envoy(_) => None,
        };
        ClientAverages { due: 0.0, had: 0.0, limiter }
    }

    fn add(&mut self, client: &Client, due: Amount, has: Amount) {
        self.due += due.get();
        self.had += has.get();
        if let (Some(watched), ClientMachine::Limiter(limiter)) = (&mut self.limiter, &client.machine) {
            watched.asked += limiter.wanted();
            watched.served = limiter.served();
        }
    }

    fn check_outcome(&self, seconds: f64) -> Result<(), String> {
        if (self.had - self.due).abs() > self.due * TOLERANCE {
            return Err(format!("had {:.2} and was due {:.2}", self.had / seconds, self.due / seconds));
        }
        self.limiter.as_ref().map_or(Ok(()), |limiter| limiter.check_outcome(self.due, seconds))
    }
}

impl LimiterAverages {
    fn new(limiter: &LimiterClient) -> LimiterAverages {
        let (burst, before) = (limiter.burst(), limiter.served());
        LimiterAverages { window: limiter.window(), asked: 0.0, burst, before, served: before }
    }

    /// Checks a limiter that was due `due` permits in `seconds`.
    fn check_outcome(&self, due: f64, seconds: f64) -> Result<(), String> {
        let arrived = (self.served.arrived - self.before.arrived) as f64;
        let passed = (self.served.passed - self.before.passed) as f64;
        self.check_wants(arrived / seconds, self.asked / seconds)?;
        let least = arrived.min(due);
        // Callers arrive at random, so some permits remain unused. With few callers that matters, so tolerate √least.
        if passed + least.sqrt() < least * (1.0 - TOLERANCE) || passed > due * (1.0 + TOLERANCE) + self.burst {
            return Err(format!("admitted {passed} of {arrived} callers, and was due {due:.1}"));
        }
        Ok(())
    }

    /// Checks the estimated wants against the offered rate, with these tolerances:
    /// - For k arrivals in the observation period, the estimate has an error of √k, plus √k after refusals by chance.
    /// - The estimate is at least ten permits per window, or a fiftieth of the limit if that is less.
    /// - With windows longer than a second, it never exceeds the limit.
    ///
    /// Wants that the estimate remembers from before the quiet period are negligible if the window is at most a tenth
    /// of that period.
    fn check_wants(&self, offered: f64, wants: f64) -> Result<(), String> {
        let (length, rate) = (self.window.length.as_secs_f64(), self.window.rate);
        let spread = (offered / length.clamp(1.0, 5.0)).sqrt();
        let spare = (10.0 / length).min(rate / 50.0);
        let most = if length > 1.0 { rate } else { f64::INFINITY };
        let (least, most) = (offered.min(most) - spread, offered.max(spare).min(most) + 2.0 * spread);
        if !(least..=most).contains(&wants) {
            return Err(format!("wants {wants:.2} per second, and {offered:.2} callers arrive"));
        }
        Ok(())
    }
}

impl Simulation<'_> {
    pub(crate) fn begin_steady_state(&mut self) {
        let left = self.plan.scenario.length.0.since(self.now);
        self.steady_state =
            Some(SteadyState { from: self.now.plus(Millis(left.0 / 2)), seconds: 0.0, clients: Vec::new() });
    }

    pub(crate) fn sample_steady_state(&mut self) {
        let Some(mut steady_state) = self.steady_state.take_if(|steady_state| steady_state.from <= self.now) else {
            return;
        };
        if steady_state.clients.is_empty() {
            steady_state.clients = self.clients.iter().map(ClientAverages::new).collect();
        } else {
            steady_state.seconds += 1.0;
            let dues = self.dues();
            let seen = steady_state.clients.iter_mut().zip(&self.clients).zip(dues.iter().zip(self.has(&dues)));
            seen.for_each(|((watched, client), (due, has))| watched.add(client, *due, has));
        }
        self.steady_state = Some(steady_state);
    }

    pub(crate) fn check_steady_state(&self) -> Result<(), Violation> {
        let Some(SteadyState { seconds, clients, .. }) = self.steady_state.as_ref().filter(|_| self.checks_invariants)
        else {
            return Ok(());
        };
        for (client, watched) in self.clients.iter().zip(clients) {
            watched.check_outcome(*seconds).map_err(|what| {
                let detail = format!("in the quiet period client {} {what}", client.name);
                Violation { invariant: "I5", detail }
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Checks a client with 40 callers per second over a hundred seconds.
    fn judged(due: f64, had: f64, asked: f64, passed: u64) -> Result<(), String> {
        let window = Window { length: Duration::from_secs(1), rate: 500.0, slides: false };
        let (before, served) =
            (CallerCounts { arrived: 1, passed: 1 }, CallerCounts { arrived: 4_001, passed: passed + 1 });
        let limiter = LimiterAverages { window, asked: asked * 100.0, burst: 20.0, before, served };
        ClientAverages { due: due * 100.0, had: had * 100.0, limiter: Some(limiter) }.check_outcome(100.0)
    }

    #[test]
    fn deviations_of_capacity_wants_and_permits_are_found() {
        assert_eq!(judged(20.0, 19.0, 41.0, 1_910), Ok(()));
        assert_eq!(judged(41.0, 41.0, 41.0, 3_920), Ok(()));
        for (wrong, expected) in [
            (judged(20.0, 17.0, 41.0, 1_700), "had 17.00 and was due 20.00"),
            (judged(20.0, 20.0, 33.0, 1_960), "wants 33.00 per second, and 40.00 callers arrive"),
            (judged(20.0, 20.0, 53.0, 1_960), "wants 53.00"),
            (judged(20.0, 20.0, 41.0, 1_750), "admitted 1750 of 4000 callers, and was due 2000.0"),
            (judged(20.0, 20.0, 41.0, 2_230), "admitted 2230 of"),
            (judged(41.0, 41.0, 41.0, 3_500), "admitted 3500 of"),
        ] {
            let error = wrong.expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
