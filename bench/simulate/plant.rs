//! The table of planted faults, each with the run that revealed it.

use leaseway_sim::runner::planted::{Fault, Found, Search};

use crate::{
    common::{
        error::Error,
        output::{self, print},
        server::Interrupt,
    },
    simulate::args::SimulateArgs,
};

pub(crate) fn search(name: &str, args: &SimulateArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let faults: Vec<Fault> = Fault::simulated().filter(|fault| name == "all" || fault.name() == name).collect();
    if faults.is_empty() {
        let known: Vec<_> = Fault::simulated().map(|fault| fault.name()).collect();
        return Err(Error::Usage(format!("there is no fault `{name}`; known: all, {}", known.join(", "))));
    }
    let search = if args.scenarios.is_empty() {
        Search::new().map_err(Error::Usage)?
    } else {
        Search::among(args.cases()?.into_iter().map(|case| (case.name(), case.plan)).collect())
    };
    let mut rows = Vec::new();
    let mut missed = 0;
    for fault in faults {
        let found = search.find(fault, args.seeds(), &|| interrupt.check().is_ok());
        interrupt.check()?;
        missed += usize::from(found.is_none());
        rows.push(row(fault, found));
    }
    let head = ["left out", "rule", "found by", "handover", "what", "seed", "after s", "peak %"];
    print(&output::render(&head, 5, &rows))?;
    if missed == 0 { Ok(()) } else { Err(Error::NotFound { faults: missed }) }
}

fn row(fault: Fault, found: Option<Found>) -> [String; 8] {
    let (name, rule) = (fault.name().to_owned(), fault.rule().to_owned());
    let nothing = || "-".to_owned();
    let Some(Found { scenario, handover, broken, peak }) = found else {
        return [name, rule, "not found".into(), nothing(), nothing(), nothing(), nothing(), nothing()];
    };
    [
        name,
        rule,
        scenario,
        handover.to_string(),
        broken.violation.invariant.to_owned(),
        broken.seed.to_string(),
        format!("{:.1}", broken.at.0 as f64 / 1000.0),
        if peak > 0.0 { format!("{peak:.2}") } else { nothing() },
    ]
}
