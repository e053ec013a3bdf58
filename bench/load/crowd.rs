//! All clients of a load, and how they get a lease before the measurement.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    common::{error::Error, signal::Interrupt},
    load::{
        generator::{Generator, Purpose},
        live::Live,
        measurement::Filled,
        options::Options,
        workload::{Population, Workload},
    },
};

/// Filling fails if no client gets a lease for this long.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 15 });

/// With fewer clients, memory per client cannot be told from other growth.
const MANY: u32 = 10_000;

/// Clients keep their leases from one run to the next.
pub(crate) struct Crowd {
    population: Population,
    /// One part for each generator thread.
    pub(crate) parts: Vec<Workload>,
    pub(crate) filled: Option<Filled>,
}

impl Crowd {
    /// A crowd without leases.
    pub(crate) fn new(options: &Options<'_>) -> Crowd {
        Crowd { population: options.population(), parts: Vec::new(), filled: None }
    }

    /// The crowd in this many parts.
    pub(crate) fn take(&mut self, threads: u32) -> Vec<Workload> {
        if self.parts.len() != threads as usize {
            self.parts = (0..threads).map(|part| Workload::part(self.population.clone(), part, threads)).collect();
        }
        std::mem::take(&mut self.parts)
    }

    pub(crate) fn leased(&self) -> u64 {
        self.parts.iter().map(|part| part.leased_beyond(now())).sum()
    }

    /// The sum of all leases that have not ended, over all resources.
    pub(crate) fn held(&self) -> f64 {
        self.parts.iter().map(|part| part.held_beyond(now())).sum()
    }

    /// Lets all clients ask until they have a lease, in a closed loop that is not measured. `observe` is called
    /// regularly.
    pub(crate) fn fill(
        &mut self,
        options: &Options<'_>,
        interrupt: &Interrupt,
        mut observe: impl FnMut(&mut Live),
    ) -> Result<(), Error> {
        let before = options.memory()?;
        let started = Instant::now();
        let generator = Generator::start(options, self.take(options.threads()), Purpose::Fill)?;
        let mut live = generator.live();
        let (mut leased, mut since) = (0, Instant::now());
        let clients = u64::from(options.clients);
        while live.leased() < clients {
            if live.leased() > leased {
                (leased, since) = (live.leased(), Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::Unfilled { leased, clients, patience: PATIENCE.as_secs() });
            }
            interrupt.poll(|| observe(&mut live))?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.parts = generator.stop().1;
        let bytes_per_client = before
            .zip(options.memory()?)
            .and_then(|(before, after)| grown(options.clients, before.now_kib, after.now_kib));
        self.filled = Some(Filled { clients: options.clients, seconds, bytes_per_client });
        Ok(())
    }
}

/// Seconds since the epoch.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

/// The growth in bytes per client.
fn grown(clients: u32, before_kib: u64, after_kib: u64) -> Option<f64> {
    (clients >= MANY).then(|| (after_kib as f64 - before_kib as f64) * 1024.0 / f64::from(clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_for_each_of_many_clients() {
        assert_eq!(grown(1_000_000, 10_000, 410_000), Some(409.6));
        assert_eq!(grown(100, 10_000, 11_000), None);
    }
}
