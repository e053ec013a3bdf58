//! `leaseway usage`: what each client has spent of budgets.

use std::collections::BTreeMap;
use std::io;
use std::time::UNIX_EPOCH;

use clap::{Args, Subcommand, ValueEnum};
use leaseway_proto::status::status_client::StatusClient;
use leaseway_proto::status::{GetStatusRequest, ListUsageRequest, UsageRow};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::{Target, block_on, refused};
use crate::error::CliError;
use crate::output::{print_file, utc};

#[derive(Subcommand)]
pub(crate) enum UsageCommand {
    /// Print what was spent of budgets in each period
    Export(Export),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  leaseway usage export --period 2026-11 > november.csv
  leaseway usage export 'team/*' --period 2026-11-28 --by resource --format jsonl

What a client has spent is exported about half a minute after it has reported it. The peers keep 200,000 rows, one for
each client process and period, and drop those of the oldest periods first.")]
pub(crate) struct Export {
    /// Resource id, or a pattern like 'team/*'. Default: all budgets
    resource: Option<String>,
    /// Year, month or day of the periods, such as 2026, 2026-11 or 2026-11-28. Default: all that are kept
    #[arg(long, value_parser = period)]
    period: Option<Period>,
    /// One row for each client, group or resource
    #[arg(long, value_enum, default_value_t = By::Holder)]
    by: By,
    /// Format of the rows
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Holder,
    Group,
    Resource,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Comma-separated values with a heading
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Period {
    from: i64,
    until: i64,
}

fn period(text: &str) -> Result<Period, String> {
    let expected = || format!("`{text}`: expected a year, month or day like 2026, 2026-11 or 2026-11-28");
    let midnight = |day: &str| {
        let moment = humantime::parse_rfc3339(&format!("{day}T00:00:00Z")).map_err(|_| expected())?;
        moment.duration_since(UNIX_EPOCH).map(|since| since.as_secs() as i64).map_err(|_| expected())
    };
    let numbers = text.split('-').map(|part| part.parse().map_err(|_| expected()));
    let numbers = numbers.collect::<Result<Vec<u32>, String>>()?;
    match numbers[..] {
        [year] => {
            Ok(Period { from: midnight(&format!("{text}-01-01"))?, until: midnight(&format!("{}-01-01", year + 1))? })
        }
        [year, month] => {
            let next = if month == 12 { format!("{}-01-01", year + 1) } else { format!("{year}-{:02}-01", month + 1) };
            Ok(Period { from: midnight(&format!("{text}-01"))?, until: midnight(&next)? })
        }
        _ => midnight(text).map(|from| Period { from, until: from + 86_400 }),
    }
}

/// A row of the export: period, resource, holder or group.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    start: i64,
    end: Option<i64>,
    resource: String,
    group: String,
    holder: String,
    is_server: bool,
}

/// Spent and lost.
type Sums = BTreeMap<Key, (f64, f64)>;

impl UsageCommand {
    pub(crate) fn run(self) -> Outcome {
        let UsageCommand::Export(export) = self;
        let sums = block_on(export.sums())?;
        let text = export.text(&sums).map_err(CliError::Output)?;
        if text.is_empty() { Ok(()) } else { print_file(text.trim_end()) }
    }
}

impl Export {
    async fn sums(&self) -> Result<Sums, CliError> {
        let look = GetStatusRequest { page_size: 1, ..Default::default() };
        let seen = self.target.observe(&look, false).await?;
        let mut client = StatusClient::new(seen.channel);
        let mut request = ListUsageRequest {
            resource: self.resource.clone().unwrap_or_default(),
            from_unix: self.period.map(|period| period.from),
            until_unix: self.period.map(|period| period.until),
            after: None,
        };
        let mut sums = Sums::new();
        loop {
            let page = client.list_usage(request.clone()).await.map_err(|status| refused(&seen.address, &status))?;
            let page = page.into_inner();
            if !page.is_kept {
                return Err(CliError::UsageNotKept { address: seen.address });
            }
            request.after = page.row.last().cloned();
            for row in page.row {
                let (spent, lost) = (row.spent, row.lost);
                let sum = sums.entry(self.key(row)).or_default();
                (sum.0, sum.1) = (sum.0 + spent, sum.1 + lost);
            }
            if !page.more {
                return Ok(sums);
            }
        }
    }

    fn key(&self, row: UsageRow) -> Key {
        Key {
            start: row.period_start,
            end: row.period_end,
            resource: row.resource_id,
            group: if self.by == By::Resource { String::new() } else { row.group },
            holder: if self.by == By::Holder { row.holder_id } else { String::new() },
            is_server: self.by == By::Holder && row.is_server,
        }
    }

    fn text(&self, sums: &Sums) -> io::Result<String> {
        if self.format == Format::Jsonl {
            return Ok(sums.iter().map(|(key, sum)| format!("{}\n", self.as_json(key, *sum))).collect());
        }
        let mut csv = csv::Writer::from_writer(Vec::new());
        let mut heading = vec!["resource", "period_start", "period_end"];
        heading.extend((self.by != By::Resource).then_some("group"));
        heading.extend((self.by == By::Holder).then_some("holder"));
        heading.extend(["spent", "lost"]);
        csv.write_record(heading)?;
        for (key, (spent, lost)) in sums {
            let mut fields = vec![key.resource.clone(), utc(key.start), key.end.map(utc).unwrap_or_default()];
            fields.extend((self.by != By::Resource).then(|| key.group.clone()));
            fields.extend((self.by == By::Holder).then(|| key.holder.clone()));
            fields.extend([spent.to_string(), lost.to_string()]);
            csv.write_record(fields)?;
        }
        let bytes = csv.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    fn as_json(&self, key: &Key, (spent, lost): (f64, f64)) -> Value {
        let mut row = json!({
            "resource": key.resource, "period_start": utc(key.start), "period_end": key.end.map(utc), "spent": spent,
            "lost": lost,
        });
        if self.by != By::Resource {
            row["group"] = json!(key.group);
        }
        if self.by == By::Holder {
            (row["holder"], row["is_server"]) = (json!(key.holder), json!(key.is_server));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_year_a_month_or_a_day_of_utc() {
        let days = |text: &str| period(text).map(|period| (period.from, (period.until - period.from) / 86_400));
        assert_eq!(days("2028-02"), Ok((1_832_976_000, 29)));
        assert_eq!(days("2028").map(|(_, days)| days), Ok(366));
        assert_eq!(days("2026-11-28").map(|(_, days)| days), Ok(1));
        for bad in ["", "2026-13", "26-11", "2026-11-31", "november", "2026/11"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
