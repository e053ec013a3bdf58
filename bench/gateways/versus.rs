//! Compares a gateway with a bare service that allows everything.

use std::num::NonZeroU32;

use tokio::task::LocalSet;

use crate::{
    common::{
        current_thread,
        error::Error,
        output::{Machine, Spread, note, print, render},
        server::Interrupt,
    },
    gateways::{
        AskArgs, Protocol,
        cluster::{GatewayCluster, Running, service},
        lanes::{LaneResult, ask_all, run_lanes},
    },
};

/// Compare a gateway with a bare service that allows everything: CPU time per request, and latency.
///
/// Both use one work-stealing runtime over all cores, the usual way to run tonic and axum. Their runs alternate, so
/// that other activity on the machine affects both.
#[derive(clap::Args)]
pub(crate) struct VersusArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// The number of runs of each.
    #[arg(long, default_value = "5", value_name = "N")]
    reps: NonZeroU32,
    /// The number of descriptors, each of which is a resource.
    #[arg(long, default_value = "100", value_name = "N")]
    descriptors: NonZeroU32,
    /// The command of the server, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
}

/// More capacity than any load uses.
const CAPACITY: u32 = 100_000_000;

pub(crate) fn main(protocol: Protocol, args: &VersusArgs) -> Result<(), Error> {
    let interrupt = Interrupt::watch()?;
    let cluster = GatewayCluster::start(args.server.as_deref(), CAPACITY, [300, 5], &interrupt)?;
    let gateway = cluster.gateway(protocol, &["--first-wait-ms", "5000"], &interrupt)?;
    let bare = service(protocol, &[], &interrupt)?;
    warm(&gateway, args)?;
    let measure = |running: &Running| {
        let result = run_lanes(running.served, &args.ask, args.descriptors.get(), &interrupt)?;
        running.check()?;
        for (kind, count) in &result.errors {
            note(&format!("warning: {count} requests failed: {kind}"));
        }
        if result.refused > 0 {
            note(&format!("warning: {} requests were refused, although the capacity suffices for all", result.refused));
        }
        Ok::<_, Error>(result)
    };
    let (mut of_gateway, mut of_bare) = (Vec::new(), Vec::new());
    for _ in 0..args.reps.get() {
        of_gateway.push(measure(&gateway)?);
        of_bare.push(measure(&bare)?);
    }
    let ratio = |of: fn(&LaneResult) -> f64| {
        let ratios: Vec<f64> = of_gateway.iter().zip(&of_bare).map(|(gateway, bare)| of(gateway) / of(bare)).collect();
        spread(&ratios, 2)
    };
    let row = |name: &str, result: &[LaneResult]| {
        let of = |of: fn(&LaneResult) -> f64, digits| spread(&result.iter().map(of).collect::<Vec<_>>(), digits);
        let [p50, p99] = [|result: &LaneResult| result.p50_us as f64, |result: &LaneResult| result.p99_us as f64];
        vec![name.to_owned(), of(|result| result.per_second, 0), of(|result| result.cpu_us, 2), of(p50, 0), of(p99, 0)]
    };
    let ratios = vec![
        "gateway / bare".to_owned(),
        ratio(|result| result.per_second),
        ratio(|result| result.cpu_us),
        ratio(|result| result.p50_us as f64),
        ratio(|result| result.p99_us as f64),
    ];
    let rows = [row("gateway", &of_gateway), row("bare", &of_bare), ratios];
    let head = ["", "requests/s", "CPU µs/request", "p50 µs", "p99 µs"];
    print(&format!("{}\n{}", render(&head, 1, &rows), Machine::read().text()))
}

/// Sends one request for each descriptor, because the first one opens a resource and waits for its lease. The command
/// `descriptors` measures that.
fn warm(gateway: &Running, args: &VersusArgs) -> Result<(), Error> {
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let all = (0..args.descriptors.get()).collect();
    LocalSet::new().block_on(&runtime, ask_all(gateway.served, &args.ask, all)).map(|_| ())
}

/// Median and range.
fn spread(values: &[f64], digits: usize) -> String {
    Spread::of(values.iter().copied())
        .map_or_else(String::new, |spread| spread.text(|value| format!("{value:.digits$}")))
}
