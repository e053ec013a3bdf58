//! Asking one server after the other, again and again if need be, until one can answer or time is up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::CliError;

/// Servers that name each other are not followed for ever.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// ... and so often they are asked again: for a moment of an election two peers may name each other.
const MAX_CYCLES: usize = 5;

/// In less time none can answer.
const MIN_ATTEMPT: Duration = Duration::from_millis(100);

/// Where there is another server to ask, one that says nothing is given so long; twice as long the next time.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Before all are asked once more.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// How long a command goes on, unless it is told.
const LIMIT: Duration = Duration::from_secs(5);

/// ... where nothing listens at all: no election is waited for, only a server that is just being started.
const STARTING: Duration = Duration::from_secs(1);

/// When a command gives up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    starting: Duration,
}

impl Patience {
    /// So many seconds; without them as long as makes sense.
    pub(crate) fn of(seconds: Option<u64>) -> Patience {
        let told = seconds.map(Duration::from_secs);
        Patience { limit: told.unwrap_or(LIMIT), starting: told.unwrap_or(STARTING) }
    }
}

/// How long one server may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Until another is asked.
    pub(crate) patience: Duration,
    /// Until the command gives up.
    pub(crate) left: Duration,
}

impl Attempt {
    pub(crate) fn within(limit: Duration) -> Attempt {
        Attempt { patience: limit, left: limit }
    }
}

/// The outcome of asking one server.
pub(crate) enum Attempted<T> {
    Answer(T),
    /// The master is there.
    Elsewhere(String),
    /// It, or another, may answer later; asking again does no harm.
    NotNow(CliError),
    /// No process has this port.
    NothingListens(CliError),
    /// Asking again would not help, or could do harm.
    Never(CliError),
}

/// Asks at each address in turn, and where those send it, until there is an answer or patience is over.
pub(crate) async fn search<T>(
    addresses: &[String],
    Patience { limit, starting }: Patience,
    ask: impl AsyncFn(&str, Attempt) -> Attempted<T>,
) -> Result<T, CliError> {
    let begun = Instant::now();
    let mut said = LastErrors::default();
    let (mut patience, mut circles) = (FIRST_TIMEOUT, 0);
    loop {
        let mut listens = false;
        for address in addresses {
            let mut at = address.clone();
            for redirects in 0..=MAX_REDIRECTS {
                let left = limit.saturating_sub(begun.elapsed());
                if left < MIN_ATTEMPT && !said.is_empty() {
                    return Err(said.error(limit));
                }
                let alone = addresses.len() == 1 && redirects == 0;
                let attempt = Attempt { patience: if alone { left } else { patience.min(left) }, left };
                match ask(&at, attempt).await {
                    Attempted::Answer(answer) => return Ok(answer),
                    Attempted::Never(error) => return Err(error),
                    Attempted::NothingListens(error) => {
                        said.note(&at, error);
                        break;
                    }
                    Attempted::NotNow(error) => {
                        listens = true;
                        said.note(&at, error);
                        break;
                    }
                    Attempted::Elsewhere(last) if redirects == MAX_REDIRECTS => {
                        (listens, circles) = (true, circles + 1);
                        said.note(&at, CliError::TooManyRedirects { count: MAX_REDIRECTS, last });
                    }
                    Attempted::Elsewhere(master) => {
                        listens = true;
                        said.note(&at, CliError::NotMaster { address: at.clone(), master: master.clone() });
                        at = master;
                    }
                }
            }
        }
        let spent = begun.elapsed();
        if spent + RETRY_DELAY >= limit || (!listens && spent >= starting) || circles >= MAX_CYCLES {
            return Err(said.error(spent));
        }
        sleep(RETRY_DELAY).await;
        patience = (patience * 2).min(limit);
    }
}

/// The last error of each server.
#[derive(Default)]
struct LastErrors(Vec<(String, CliError, u32)>);

impl LastErrors {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, address: &str, error: CliError) {
        match self.0.iter_mut().find(|(known, ..)| known == address) {
            Some((_, last, times)) => (*last, *times) = (error, *times + 1),
            None => self.0.push((address.to_owned(), error, 1)),
        }
    }

    /// The error of a single server, or all of them.
    fn error(mut self, spent: Duration) -> CliError {
        if self.0.len() == 1
            && let Some((_, error, _)) = self.0.pop()
        {
            return error;
        }
        let line = |(address, error, times): &(String, CliError, u32)| {
            let asked = if *times > 1 { format!(" (asked {times} times)") } else { String::new() };
            format!("\n  {}: {}{asked}", leaseway_core::escaped(address), leaseway_core::escaped(&error.brief()))
        };
        let electing = self.0.iter().any(|(_, error, _)| error.is_for_want_of_a_master());
        CliError::NoAnswer { spent, tried: self.0.iter().map(line).collect(), electing, origin: None }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn addresses(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn no_master(address: &str) -> CliError {
        CliError::NoMaster { address: address.to_owned() }
    }

    fn unreachable(address: &str) -> CliError {
        CliError::Unreachable { address: address.to_owned(), why: "connection refused".into(), origin: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_first_server_costs_a_moment_and_a_silent_one_no_more_than_its_share() {
        let begun = Instant::now();
        let servers = addresses(&["dead", "silent", "c"]);
        let answer = search(&servers, Patience::of(None), async |address: &str, attempt: Attempt| match address {
            "dead" => Attempted::NothingListens(unreachable(address)),
            "silent" => {
                sleep(attempt.patience).await;
                Attempted::NotNow(unreachable(address))
            }
            _ => Attempted::Answer(begun.elapsed()),
        });
        assert_eq!(answer.await.ok(), Some(FIRST_TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_is_waited_for_and_its_master_followed() {
        let asked = RefCell::new(Vec::new());
        let servers = addresses(&["a"]);
        let answer = search(&servers, Patience::of(None), async |address: &str, _| {
            asked.borrow_mut().push(address.to_owned());
            match (address, asked.borrow().len()) {
                ("a", ..4) => Attempted::NotNow(no_master(address)),
                ("a", _) => Attempted::Elsewhere("b".into()),
                _ => Attempted::Answer(()),
            }
        });
        assert_eq!(answer.await.ok(), Some(()));
        assert_eq!(*asked.borrow(), ["a", "a", "a", "a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_each_said_is_told_when_time_is_up() {
        let begun = Instant::now();
        let servers = addresses(&["a", "b\n"]);
        let failed = search(&servers, Patience::of(None), async |address: &str, _| match address {
            "a" => Attempted::<()>::NotNow(no_master(address)),
            _ => Attempted::NothingListens(unreachable(address)),
        });
        let error = failed.await.expect_err("no server answers").to_string();
        assert!(error.contains("\n  a: it is not the master and knows of none (asked"), "{error}");
        assert!(error.contains("\n  b\\n: connection refused (asked"), "{error}");
        assert!(begun.elapsed() <= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_listens_it_gives_up_after_a_second_unless_told_otherwise() {
        let begun = Instant::now();
        let servers = addresses(&["a"]);
        let error =
            search(&servers, Patience::of(None), async |at: &str, _| Attempted::<()>::NothingListens(unreachable(at)));
        assert!(matches!(error.await, Err(CliError::Unreachable { .. })), "a single server's own words");
        assert!(begun.elapsed() < 2 * STARTING);
        let begun = Instant::now();
        let error = search(&servers, Patience::of(Some(30)), async |at: &str, _| {
            Attempted::<()>::NothingListens(unreachable(at))
        });
        assert!(error.await.is_err());
        assert!(begun.elapsed() > Duration::from_secs(29), "unless it is told how long to try");
    }

    #[tokio::test(start_paused = true)]
    async fn servers_that_name_each_other_are_not_followed_for_ever() {
        let servers = addresses(&["a"]);
        let error = search(&servers, Patience::of(None), async |at: &str, _| {
            Attempted::<()>::Elsewhere(if at == "a" { "b".into() } else { "a".into() })
        });
        let error = error.await.expect_err("there is no end to it").to_string();
        assert!(error.contains("followed 5 redirects"), "{error}");
    }
}
