//! Calls of a language model, whose cost in tokens is known only when they end. All processes that run this share one
//! budget: the resource `tokens`, with a capacity in tokens per second. Start a server first: `leaseway serve`.
//!
//! `token_budget [SERVER [SECONDS [WINDOW_SECONDS [MAX_TOKENS [CALL_MILLIS [RESERVE]]]]]]`
//!
//! It prints a line for each call: when it asked for tokens, when it got them and when it ended, in microseconds of
//! wall-clock time; the tokens reserved, the tokens used, and the debt at the end.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env,
    error::Error,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{Client, Rate, limiter::Burst};
use tokio::time::{Instant, sleep};

/// Concurrent calls of this process.
const CALLS: usize = 4;

/// A call whose cost is not known yet.
#[derive(Clone, Copy)]
struct Call {
    max_tokens: u32,
    longest: Duration,
}

impl Call {
    /// Performs the call. Returns its cost.
    async fn make(self) -> u32 {
        sleep(self.longest.mul_f64(fastrand::f64())).await;
        fastrand::u32(self.max_tokens / 20..=self.max_tokens)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect(argument(1, "127.0.0.1:5100".to_owned())?)?;
    let until = Instant::now() + Duration::from_secs(argument(2, 60)?);
    let window = Burst::Window(Duration::from_secs_f64(argument(3, 60.0)?));
    let call = Call { max_tokens: argument(4, 4_000)?, longest: Duration::from_millis(argument(5, 2_000)?) };
    let reserve = argument(6, call.max_tokens)?;

    let tokens = client.resource("tokens").burst(window).rate()?;
    let workers: Vec<_> = (0..CALLS).map(|_| tokio::spawn(work(tokens.clone(), call, reserve, until))).collect();
    for worker in workers {
        worker.await??;
    }
    client.close().await;
    Ok(())
}

async fn work(tokens: Rate, call: Call, reserve: u32, until: Instant) -> Result<(), leaseway_client::limiter::Closed> {
    loop {
        let asked = now();
        let Ok(reservation) = tokio::time::timeout_at(until, tokens.reserve(reserve)).await else { return Ok(()) };
        let (reservation, granted) = (reservation?, now());
        let used = call.make().await;
        if let Err(exceeded) = reservation.settle(u64::from(used)) {
            eprintln!("{exceeded}");
        }
        println!("{asked} {granted} {} {reserve} {used} {}", now(), tokens.debt());
    }
}

/// Microseconds since 1970.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

fn argument<T: FromStr<Err: Error + 'static>>(n: usize, or: T) -> Result<T, Box<dyn Error>> {
    Ok(env::args().nth(n).map_or(Ok(or), |argument| argument.parse())?)
}
