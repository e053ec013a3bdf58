//! Asks servers in turn, and repeatedly, until one answers or time is up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::CliError;

/// The maximum number of redirects to follow.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// The maximum number of redirect cycles: during an election two peers may briefly name each other.
const MAX_CYCLES: usize = 5;

/// The minimum time for an attempt; a shorter one could not succeed.
const MIN_ATTEMPT: Duration = Duration::from_millis(100);

/// The timeout of a silent server if there are others to ask; doubled in each round.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between rounds.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The default time limit of a command.
const LIMIT: Duration = Duration::from_secs(5);

/// The default limit if nothing listens: only a server that is starting is worth waiting for.
const STARTING: Duration = Duration::from_secs(1);

/// When a command gives up.
pub(crate) struct SearchLimits {
    pub(crate) limit: Duration,
    starting: Duration,
}

impl SearchLimits {
    /// The value of `--timeout`, or the defaults.
    pub(crate) fn of(seconds: Option<u64>) -> SearchLimits {
        let given = seconds.map(Duration::from_secs);
        SearchLimits { limit: given.unwrap_or(LIMIT), starting: given.unwrap_or(STARTING) }
    }
}

/// The time limits of one attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Until another server is asked.
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
    /// The address of the master.
    Elsewhere(String),
    /// Possibly temporary; a retry does no harm.
    NotNow(CliError),
    /// No process listens on the port.
    NothingListens(CliError),
    /// A retry would not help, or could do harm.
    Never(CliError),
}

/// Asks each address in turn, and follows redirects, until there is an answer or time is up.
pub(crate) async fn search<T>(
    addresses: &[String],
    SearchLimits { limit, starting }: SearchLimits,
    ask: impl AsyncFn(&str, Attempt) -> Attempted<T>,
) -> Result<T, CliError> {
    let begun = Instant::now();
    let mut errors = LastErrors::default();
    let (mut patience, mut cycles) = (FIRST_TIMEOUT, 0);
    loop {
        let mut listens = false;
        for address in addresses {
            let mut at = address.clone();
            for redirects in 0..=MAX_REDIRECTS {
                let left = limit.saturating_sub(begun.elapsed());
                if left < MIN_ATTEMPT && !errors.0.is_empty() {
                    return Err(errors.summary(limit));
                }
                let alone = addresses.len() == 1 && redirects == 0;
                let attempt = Attempt { patience: if alone { left } else { patience.min(left) }, left };
                match ask(&at, attempt).await {
                    Attempted::Answer(answer) => return Ok(answer),
                    Attempted::Never(error) => return Err(error),
                    Attempted::NothingListens(error) => {
                        errors.note(&at, error);
                        break;
                    }
                    Attempted::NotNow(error) => {
                        listens = true;
                        errors.note(&at, error);
                        break;
                    }
                    Attempted::Elsewhere(last) if redirects == MAX_REDIRECTS => {
                        (listens, cycles) = (true, cycles + 1);
                        errors.note(&at, CliError::TooManyRedirects { count: MAX_REDIRECTS, last });
                    }
                    Attempted::Elsewhere(master) => {
                        listens = true;
                        errors.note(&at, CliError::NotMaster { address: at.clone(), master: master.clone() });
                        at = master;
                    }
                }
            }
        }
        let spent = begun.elapsed();
        if spent + RETRY_DELAY >= limit || (!listens && spent >= starting) || cycles >= MAX_CYCLES {
            return Err(errors.summary(spent));
        }
        sleep(RETRY_DELAY).await;
        patience = (patience * 2).min(limit);
    }
}

/// The last error of each server.
#[derive(Default)]
struct LastErrors(Vec<(String, CliError, u32)>);

impl LastErrors {
    fn note(&mut self, address: &str, error: CliError) {
        match self.0.iter_mut().find(|(known, ..)| known == address) {
            Some((_, last, times)) => (*last, *times) = (error, *times + 1),
            None => self.0.push((address.to_owned(), error, 1)),
        }
    }

    /// The error of the only server, or a list of all.
    fn summary(mut self, spent: Duration) -> CliError {
        if self.0.len() == 1
            && let Some((_, error, _)) = self.0.pop()
        {
            return error;
        }
        let line = |(address, error, times): &(String, CliError, u32)| {
            let asked = if *times > 1 { format!(" (asked {times} times)") } else { String::new() };
            format!(
                "\n  {}: {}{asked}",
                leaseway_core::types::escaped(address),
                leaseway_core::types::escaped(&error.brief())
            )
        };
        let electing = self.0.iter().any(|(_, error, _)| error.awaits_master());
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
    async fn a_dead_server_is_skipped_at_once_and_a_silent_one_after_its_timeout() {
        let begun = Instant::now();
        let servers = addresses(&["dead", "silent", "c"]);
        let answer = search(&servers, SearchLimits::of(None), async |address: &str, attempt: Attempt| match address {
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
    async fn an_election_is_awaited_and_its_master_followed() {
        let asked = RefCell::new(Vec::new());
        let servers = addresses(&["a"]);
        let answer = search(&servers, SearchLimits::of(None), async |address: &str, _| {
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
    async fn at_the_time_limit_the_last_error_of_each_server_is_listed() {
        let begun = Instant::now();
        let servers = addresses(&["a", "b\n"]);
        let failed = search(&servers, SearchLimits::of(None), async |address: &str, _| match address {
            "a" => Attempted::<()>::NotNow(no_master(address)),
            _ => Attempted::NothingListens(unreachable(address)),
        });
        let error = failed.await.expect_err("no server answers").to_string();
        assert!(error.contains("\n  a: not the master, and knows no master (asked"), "{error}");
        assert!(error.contains("\n  b\\n: connection refused (asked"), "{error}");
        assert!(begun.elapsed() <= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_listens_it_gives_up_after_a_second_or_the_given_time() {
        let servers = addresses(&["a"]);
        for (timeout, least, most) in [(None, 0, 2), (Some(30), 29, 31)] {
            let begun = Instant::now();
            let answer = search(&servers, SearchLimits::of(timeout), async |at: &str, _| {
                Attempted::<()>::NothingListens(unreachable(at))
            });
            assert!(matches!(answer.await, Err(CliError::Unreachable { .. })), "the only server's own error");
            assert!((least..most).contains(&begun.elapsed().as_secs()), "{timeout:?}: {:?}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn redirect_cycles_end() {
        let servers = addresses(&["a"]);
        let error = search(&servers, SearchLimits::of(None), async |at: &str, _| {
            Attempted::<()>::Elsewhere(if at == "a" { "b".into() } else { "a".into() })
        });
        let error = error.await.expect_err("it is a cycle").to_string();
        assert!(error.contains("after 5 redirects"), "{error}");
    }
}
