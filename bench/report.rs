//! From what was measured to what is shown: one page, or one picture, that needs nothing else to be read.
//!
//! `read` tells the files apart, `cases` brings loads and comparisons into one form, `trees` simulations and faults;
//! [`chart`](crate::chart) draws; `page` puts it together. No script runs in the page and nothing is fetched: it is
//! still readable when this harness is not.

use std::path::PathBuf;

use crate::{
    error::Error,
    output::{note, write},
};

mod cases;
mod page;
mod read;
mod trees;

/// Makes pictures and tables of what was measured, in one file that needs no other.
///
/// Takes what `load --json`, `compare --json`, `simulate --json`, `chaos --json` and `fleet --json` have written, any
/// number of files together: throughput and CPU time per request with their ranges, the distribution of latencies, cost
/// against the number of clients; shares used in trees, times after mishaps; and all figures, with the commands that
/// repeat them.
#[derive(clap::Args)]
#[command(after_long_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArgs {
    /// What was measured.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write a page, for a browser.
    #[arg(long, value_name = "FILE", required_unless_present = "svg")]
    html: Option<PathBuf>,
    /// Write the pictures alone, below each other.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What it says at the top.
    #[arg(long, default_value = "Measured with leaseway-bench", value_name = "TEXT")]
    title: String,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  leaseway-bench load --target 127.0.0.1:5100 --json > load.json
  leaseway-bench simulate five --seeds 10 --json five.json
  leaseway-bench report load.json five.json --html page.html --svg pictures.svg";

pub(crate) fn main(args: &ReportArgs) -> Result<(), Error> {
    let sources = args.files.iter().map(|file| read::read(file)).collect::<Result<Vec<_>, _>>()?;
    let page = page::Page::new(&args.title, &sources);
    for (path, text) in [(&args.html, page.html()), (&args.svg, page.svg())] {
        if let Some(path) = path {
            write(path, &text)?;
            note(&format!("wrote {}", path.display()));
        }
    }
    Ok(())
}
