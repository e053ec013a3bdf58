//! `leaseway config check`.

use std::path::Path;

use leaseway_server::config;

use crate::{
    Outcome,
    format::number,
    output::{say, table},
};

pub(super) fn check(file: &Path) -> Outcome {
    let loaded = config::load(file)?;
    for warning in &loaded.warnings {
        say(format_args!("warning: {warning}"))?;
    }
    let heading = ["TEMPLATE", "CAPACITY", "ALGORITHM", "LEASE", "REFRESH"].map(str::to_owned).to_vec();
    let rows = loaded.repository.templates().map(|template| {
        let settings = &template.settings;
        vec![
            template.identifier_glob.clone(),
            number(settings.capacity.get()),
            settings.kind.name().to_owned(),
            format!("{} s", settings.lease.0 / 1000),
            format!("{} s", settings.refresh.0 / 1000),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let count = rows.len() - 1;
    let templates = if count == 1 { "template" } else { "templates" };
    say(format_args!("{} is fine: {count} {templates}", file.display()))?;
    say(table(&rows))
}
