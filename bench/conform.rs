//! `conform` checks a client library against scripted servers.
//!
//! A small program in the language of the library executes the commands of the [driver](crate::common::driver). Each [case](cases) starts the
//! program and its own [servers](server), and checks one rule of docs/reference/client-protocol.md.

mod cases;
mod server;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Instant};

use serde::Serialize;
use tokio::{
    runtime,
    sync::Semaphore,
    task::{JoinSet, LocalSet},
    time::{Duration, timeout},
};

use self::cases::{CASES, Case, Kit};
use crate::common::{
    driver::UNSUPPORTED,
    error::Error,
    output::{print, write_json},
};

/// The time limit of a case.
const CASE_TIMEOUT: Duration = Duration::from_secs(90);

/// Check that a client library keeps the rules of docs/reference/client-protocol.md
///
/// COMMAND is a program that drives the library: it reads commands from standard input and answers each with a line.
/// The protocol of these lines is in that document, too.
#[derive(clap::Args)]
pub(crate) struct ConformArgs {
    /// Program that drives the client library, with its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Run only the cases with these numbers
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    only: Vec<u8>,
    /// Number of cases that run at the same time
    #[arg(long, value_name = "N", default_value_t = 6)]
    jobs: usize,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct CaseResult {
    number: u8,
    name: &'static str,
    /// Whether the library has what the case is about: budgets, streams, or several limits at once.
    offered: bool,
    /// Why the case failed.
    failure: Option<String>,
    seconds: f64,
}

pub(crate) fn main(args: &ConformArgs) -> Result<(), Error> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Error::io("start a runtime"))?;
    let results = LocalSet::new().block_on(&runtime, run(args))?;
    for CaseResult { number, name, offered, failure, seconds } in &results {
        match failure {
            None if !offered => print(&format!("{number:>3}  not offered      {name}"))?,
            None => print(&format!("{number:>3}  pass  {seconds:>7.1} s  {name}"))?,
            Some(why) => print(&format!("{number:>3}  FAIL  {seconds:>7.1} s  {name}: {why}"))?,
        }
    }
    write_json(args.json.as_deref(), &results)?;
    let failed = results.iter().filter(|result| result.failure.is_some()).count();
    if failed > 0 {
        return Err(Error::NotConforming { failed, cases: results.len() });
    }
    match results.iter().filter(|result| !result.offered).count() {
        0 => print(&format!("{} cases passed", results.len())),
        others => print(&format!("{} cases passed, {others} not offered by the library", results.len() - others)),
    }
}

async fn run(args: &ConformArgs) -> Result<Vec<CaseResult>, Error> {
    let only: BTreeSet<u8> = args.only.iter().copied().collect();
    if let Some(unknown) = only.iter().find(|number| !CASES.iter().any(|case| case.number == **number)) {
        return Err(Error::Usage(format!("there is no case {unknown}: the cases are 1 to {}", CASES.len())));
    }
    let permits = Arc::new(Semaphore::new(args.jobs.max(1)));
    let mut running = JoinSet::new();
    for case in CASES.iter().filter(|case| only.is_empty() || only.contains(&case.number)) {
        let (permits, kit) = (Arc::clone(&permits), Kit::new(args.command.clone()));
        running.spawn_local(async move {
            let _permit = permits.acquire_owned().await.expect("it is never closed");
            judge(case, kit).await
        });
    }
    let mut results = running.join_all().await;
    results.sort_by_key(|result| result.number);
    Ok(results)
}

async fn judge(case: &'static Case, kit: Kit) -> CaseResult {
    let begin = Instant::now();
    let outcome = timeout(CASE_TIMEOUT, (case.run)(kit)).await;
    let failure = outcome.unwrap_or_else(|_| Err(format!("no result after {} s", CASE_TIMEOUT.as_secs()))).err();
    let offered = failure.as_deref() != Some(UNSUPPORTED);
    let failure = failure.filter(|_| offered);
    CaseResult { number: case.number, name: case.name, offered, failure, seconds: begin.elapsed().as_secs_f64() }
}
