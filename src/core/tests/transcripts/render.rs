//! The formats of answers, amounts and times in transcripts.

use super::{Failure, TERM};
use crate::{
    resource::{Answer, Lease},
    types::{Amount, Claim, Millis},
};

pub(super) fn told(answer: &Answer) -> String {
    match answer {
        Answer::Granted(_) | Answer::Supplied(_) => answer.lease().map_or_else(String::new, |lease| {
            let Lease { token, capacity, length, refresh, safe_capacity, priority, pool, .. } = lease;
            let standing = pool.map_or_else(String::new, |state| super::pool::told(&state));
            let priority = if *priority == 0 { String::new() } else { format!(", counts as priority {priority}") };
            format!(
                "lease {}: {}/s for {}, refresh {}, safe {}{priority}{standing}",
                token.get() - TERM.0,
                number(capacity.get()),
                time(*length),
                time(*refresh),
                number(*safe_capacity),
            )
        }),
        Answer::NotYet => "not yet: keep what you have, ask again in a second".to_owned(),
        Answer::TooSoon => "too soon, left out of the answer".to_owned(),
        Answer::Stale => "stale, dropped".to_owned(),
        Answer::Full => "refused, there are too many holders".to_owned(),
        Answer::ShareFull => "refused, its principal has its share of all holders".to_owned(),
        Answer::Unknown => "left out, nothing is known of it".to_owned(),
        Answer::NeedsReport => "refused, it does not report what it spends".to_owned(),
        Answer::NeedsStorage => "refused, this node would forget what was spent".to_owned(),
        Answer::NameTaken => "refused, another node has its name".to_owned(),
        Answer::Released => "released".to_owned(),
    }
}

/// `3x120@2`: 3 clients of priority 2 that want 120 together.
pub(super) fn claim(text: &str) -> Result<Claim, Failure> {
    let (text, priority) = text.split_once('@').unwrap_or((text, "0"));
    let (subclients, wants) = text.split_once('x').ok_or("a slice is CLIENTSxWANTS[@PRIORITY]")?;
    Ok(Claim::new(amount(wants)?, subclients.parse()?, priority.parse()?))
}

pub(super) fn amount(text: &str) -> Result<Amount, Failure> {
    Ok(Amount::new(text.parse()?)?)
}

pub(super) fn duration(text: &str) -> Result<Millis, Failure> {
    let seconds: f64 = text.strip_suffix('s').ok_or("durations are seconds, as in `16s`")?.parse()?;
    Ok(Millis((seconds * 1000.0).round() as u64))
}

pub(super) fn time(span: Millis) -> String {
    format!("{}s", number(span.0 as f64 / 1000.0))
}

/// Rounds to a millionth. Other tests cover exact digits.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
