//! A strict parser of the Prometheus text format 0.0.4, with the checks that scrapers rely on.

use std::collections::{BTreeMap, HashSet};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

#[derive(Debug, Default)]
struct Family {
    help: Option<String>,
    kind: Option<String>,
    samples: Vec<Sample>,
}

#[derive(Debug, Default)]
pub(crate) struct Scrape(BTreeMap<String, Family>);

impl Scrape {
    /// Panics on any violation of the format.
    pub(crate) fn parse(text: &str) -> Scrape {
        assert!(text.is_empty() || text.ends_with('\n'), "the last line must end with a line break");
        let mut scrape = Scrape::default();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                scrape.comment(comment, &mut current);
            } else {
                scrape.sample(sample(line), &current);
            }
        }
        scrape.0.iter().for_each(|(name, family)| family.check(name));
        scrape
    }

    fn comment(&mut self, comment: &str, current: &mut String) {
        let mut words = comment.splitn(3, ' ');
        let (keyword, name) = (words.next().unwrap(), words.next().expect("a name"));
        let text = words.next().unwrap_or_default().to_owned();
        if name != current {
            assert!(!self.0.contains_key(name), "the lines of {name} are not together");
            name.clone_into(current);
        }
        let family = self.0.entry(name.to_owned()).or_default();
        assert!(family.samples.is_empty(), "{name}: {keyword} must precede the samples");
        let place = match keyword {
            "HELP" => &mut family.help,
            "TYPE" => &mut family.kind,
            other => panic!("unknown keyword {other}"),
        };
        assert_eq!(place.replace(text), None, "{name} has two {keyword} lines");
    }

    fn sample(&mut self, sample: Sample, current: &str) {
        let family = self.0.get_mut(current).unwrap_or_else(|| panic!("{} has no HELP and no TYPE", sample.name));
        let suffix = sample
            .name
            .strip_prefix(current)
            .unwrap_or_else(|| panic!("{} is between lines of {current}", sample.name));
        let suffixes: &[&str] = match family.kind.as_deref() {
            Some("histogram") => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{} cannot belong to {current}", sample.name);
        family.samples.push(sample);
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.kind.as_deref()
    }

    /// All series of a name.
    pub(crate) fn series(&self, name: &str) -> Vec<&Sample> {
        self.0.values().flat_map(|family| &family.samples).filter(|sample| sample.name == name).collect()
    }

    /// The value of the series with this label.
    pub(crate) fn find(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let series = self.series(name);
        let found = series.iter().find(|sample| sample.labels.get(label).is_some_and(|found| found == value));
        found.map(|sample| sample.value)
    }

    /// The value of the only series of a name.
    pub(crate) fn only(&self, name: &str) -> f64 {
        match self.series(name).as_slice() {
            [one] => one.value,
            several => panic!("{name} has {} series", several.len()),
        }
    }
}

impl Family {
    fn check(&self, name: &str) {
        assert!(self.help.as_deref().is_some_and(|help| !help.is_empty()), "{name} has no HELP text");
        let kind = self.kind.as_deref().unwrap_or_else(|| panic!("{name} has no TYPE"));
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} is a {kind}");
        let mut seen = HashSet::new();
        for sample in &self.samples {
            assert!(seen.insert((&sample.name, &sample.labels)), "duplicate sample {sample:?}");
            assert!(kind == "gauge" || sample.value >= 0.0, "negative count in {sample:?}");
        }
        if kind == "histogram" {
            self.check_histogram(name);
        }
    }

    fn check_histogram(&self, name: &str) {
        let named = |suffix: &str| {
            let wanted = format!("{name}{suffix}");
            self.samples.iter().filter(move |sample| sample.name == wanted)
        };
        for count in named("_count") {
            assert!(named("_sum").any(|sum| sum.labels == count.labels), "{count:?} has no sum");
            let mut before = (f64::NEG_INFINITY, 0.0);
            for bucket in named("_bucket") {
                let mut labels = bucket.labels.clone();
                let bound: f64 = labels.remove("le").expect("a bucket has a bound").parse().unwrap();
                if labels == count.labels {
                    assert!(bound > before.0 && bucket.value >= before.1, "{bucket:?} after {before:?}");
                    before = (bound, bucket.value);
                }
            }
            assert_eq!(before, (f64::INFINITY, count.value), "the last bucket of {name} must equal the count");
        }
    }
}

/// `name{label="value",…} value`. Timestamps are not expected.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "invalid name {name}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((label, behind)) = rest.split_once("=\"").filter(|_| !rest.starts_with('}')) {
            assert!(is_name(label), "invalid label name {label} in {line}");
            let (value, behind) = quoted(behind);
            assert_eq!(labels.insert(label.to_owned(), value), None, "duplicate label {label} in {line}");
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("unterminated labels: {line}"));
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("invalid number {value}: {line}"));
    Sample { name: name.to_owned(), labels, value }
}

fn is_name(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !text.is_empty() && text.chars().all(valid) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// The value of a label, and the rest of the line.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some(c @ ('\\' | '"')) => value.push(c),
                other => panic!("invalid escape \\{other:?} in {text}"),
            },
            c => value.push(c),
        }
    }
    panic!("unterminated quote: {text}");
}
