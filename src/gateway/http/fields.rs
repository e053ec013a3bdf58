//! Tables of request fields. Validation and the OpenAPI document both use them, so that the two cannot differ.

use std::{borrow::Cow, fmt, ops::RangeInclusive};

use leaseway_core::{policy::parameters::nearest, types::escaped};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::{
    lease_token::LeaseToken,
    problem::{Problem, ProblemKind},
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldKind {
    /// An id of a client or resource.
    Id,
    /// An amount of a resource.
    Amount,
    Whole {
        least: i64,
        most: i64,
    },
    Seconds {
        least: f64,
        most: f64,
    },
    LeaseToken,
    /// Numbers of units, by their names.
    Usage,
    /// One or more objects.
    List {
        fields: &'static [Field],
        most: usize,
    },
}

/// The default of `--max-id-bytes` of servers.
pub(super) const MAX_ID_BYTES: usize = 256;
/// The maximum amount that servers accept.
pub(super) const MAX_AMOUNT: f64 = 1e15;
/// The range of a number of units.
pub(super) const UNITS: RangeInclusive<f64> = 0.0..=1e15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    /// The value if the field is missing.
    pub(super) default: Option<f64>,
    pub(super) required: bool,
    /// Fields that may be given in its place, but not with it.
    pub(super) alternatives: &'static [&'static str],
    /// A field that must be given with it.
    pub(super) needs: Option<&'static str>,
    pub(super) about: &'static str,
}

impl Field {
    pub(super) const fn required(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
        Field { name, kind, default: None, required: true, alternatives: &[], needs: None, about }
    }

    pub(super) const fn optional(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
        Field { name, kind, default: None, required: false, alternatives: &[], needs: None, about }
    }

    pub(super) const fn or(self, default: f64) -> Field {
        Field { default: Some(default), required: false, ..self }
    }

    pub(super) const fn or_fields(self, alternatives: &'static [&'static str]) -> Field {
        Field { alternatives, ..self }
    }

    pub(super) const fn with_field(self, needs: &'static str) -> Field {
        Field { needs: Some(needs), ..self }
    }
}

impl FieldKind {
    /// For an error message, after "expected".
    fn expected(self) -> String {
        match self {
            FieldKind::Id => format!("a string of 1 to {MAX_ID_BYTES} bytes"),
            FieldKind::Amount => format!("a number from 0 to {MAX_AMOUNT:e}"),
            FieldKind::Whole { least, most } => format!("a whole number from {least} to {most}"),
            FieldKind::Seconds { least, most } => format!("a number of seconds from {least} to {most}"),
            FieldKind::LeaseToken => "the `token` of a lease, unchanged".to_owned(),
            FieldKind::Usage => format!("an object of whole numbers from 0 to {:e}", UNITS.end()),
            FieldKind::List { most, .. } => format!("a list of 1 to {most} objects"),
        }
    }

    /// Validates a value of the field `name`.
    pub(super) fn check(self, name: &str, value: &Value) -> Result<(), Problem> {
        if self.accepts(value) {
            return self.check_elements(name, value);
        }
        let why = format!("is {}; expected {}", shown(value), self.expected());
        Err(Problem::of_field(ProblemKind::BadValue, name, &why))
    }

    /// Validates the objects of a list.
    fn check_elements(self, name: &str, value: &Value) -> Result<(), Problem> {
        let (FieldKind::List { fields, .. }, Value::Array(elements)) = (self, value) else { return Ok(()) };
        for (index, element) in elements.iter().enumerate() {
            Fields::of_element(fields, &format!("{name}[{index}]"), element)?;
        }
        Ok(())
    }

    fn accepts(self, value: &Value) -> bool {
        let is_within = |least: f64, most: f64| value.as_f64().is_some_and(|number| (least..=most).contains(&number));
        match self {
            FieldKind::Id => value.as_str().is_some_and(|id| (1..=MAX_ID_BYTES).contains(&id.len())),
            FieldKind::Amount => is_within(0.0, MAX_AMOUNT),
            // 3.0 is whole, too.
            FieldKind::Whole { least, most } => {
                is_within(least as f64, most as f64) && value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            FieldKind::Seconds { least, most } => is_within(least, most),
            FieldKind::LeaseToken => value.as_str().and_then(LeaseToken::parse).is_some(),
            FieldKind::Usage => {
                let is_valid = |number: f64| UNITS.contains(&number) && number.fract() == 0.0;
                value
                    .as_object()
                    .is_some_and(|units| units.values().all(|number| number.as_f64().is_some_and(is_valid)))
            }
            FieldKind::List { most, .. } => value.as_array().is_some_and(|list| (1..=most).contains(&list.len())),
        }
    }
}

/// The validated fields of a request.
#[derive(Debug)]
pub(super) struct Fields {
    table: &'static [Field],
    read: Vec<(String, Value)>,
}

impl Fields {
    /// Reads a body. An empty body has no fields.
    pub(super) fn of_body(table: &'static [Field], body: &[u8]) -> Result<Fields, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Fields::check(table, "", Vec::new());
        }
        match serde_json::from_slice(body) {
            Ok(Members(members)) => Fields::check(table, "", members),
            Err(error) => {
                let why = format!("the body is not a JSON object: {error}");
                Err(Problem::new(ProblemKind::Malformed, escaped(&why)))
            }
        }
    }

    /// Reads the query of a URI.
    pub(super) fn of_query(table: &'static [Field], query: Vec<(String, String)>) -> Result<Fields, Problem> {
        Fields::check(table, "", query.into_iter().map(|(name, value)| (name, Value::String(value))).collect())
    }

    /// Reads an object in a list. `path` is its position in the body.
    fn of_element(table: &'static [Field], path: &str, element: &Value) -> Result<Fields, Problem> {
        match element {
            Value::Object(members) => Fields::check(table, &format!("{path}."), members.clone().into_iter().collect()),
            other => {
                let why = format!("is {}; expected an object", shown(other));
                Err(Problem::of_field(ProblemKind::BadValue, path, &why))
            }
        }
    }

    /// `path` is put in front of the names in errors.
    fn check(table: &'static [Field], path: &str, read: Vec<(String, Value)>) -> Result<Fields, Problem> {
        for (index, (name, value)) in read.iter().enumerate() {
            let Some(field) = table.iter().find(|field| field.name == name) else {
                return Err(unknown(table, path, name));
            };
            let within: Cow<'_, str> = if path.is_empty() { name.into() } else { format!("{path}{name}").into() };
            if read[..index].iter().any(|(other, _)| other == name) {
                return Err(Problem::of_field(ProblemKind::BadValue, &within, "is given twice"));
            }
            field.kind.check(&within, value)?;
            let is_given = |other: &&&str| read[..index].iter().any(|(name, _)| name == **other);
            if let Some(other) = field.alternatives.iter().find(is_given) {
                let why = format!("excludes `{other}`; give only one of them");
                return Err(Problem::of_field(ProblemKind::BadValue, &within, &why));
            }
        }
        let is_given = |name: &str| read.iter().any(|(given, _)| given == name);
        for field in table.iter().filter(|field| is_given(field.name)) {
            if let Some(needed) = field.needs.filter(|needed| !is_given(needed)) {
                return Err(missing(path, needed, &format!("is missing; `{}` needs it", field.name)));
            }
        }
        for field in table.iter().filter(|field| field.required) {
            if !read.iter().any(|(name, _)| name == field.name || field.alternatives.contains(&&**name)) {
                let or: String = field.alternatives.iter().map(|other| format!(", or `{other}`")).collect();
                let why = format!("is missing; expected {}{or}", field.kind.expected());
                return Err(missing(path, field.name, &why));
            }
        }
        Ok(Fields { table, read })
    }

    fn knows(&self, name: &str) -> bool {
        self.table.iter().any(|field| field.name == name)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.read.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// An id, or an empty string if an optional one is missing.
    pub(super) fn id(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A number, or its default.
    pub(super) fn number(&self, name: &str) -> f64 {
        let default = || self.table.iter().find(|field| field.name == name).and_then(|field| field.default);
        self.get(name).and_then(Value::as_f64).or_else(default).unwrap_or_default()
    }

    /// A number, or None if it is missing.
    pub(super) fn number_if_given(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(Value::as_f64)
    }

    /// Like [`number`](Self::number), or None if the operation has no such field.
    pub(super) fn number_if_known(&self, name: &str) -> Option<f64> {
        self.knows(name).then(|| self.number(name))
    }

    /// The objects of a list.
    pub(super) fn list(&self, name: &str) -> Vec<Fields> {
        let field = self.table.iter().find(|field| field.name == name);
        let Some(FieldKind::List { fields, .. }) = field.map(|field| field.kind) else { return Vec::new() };
        let elements = self.get(name).and_then(Value::as_array).into_iter().flatten();
        elements.filter_map(|element| Fields::of_element(fields, name, element).ok()).collect()
    }

    pub(super) fn lease(&self, name: &str) -> Option<LeaseToken> {
        self.get(name).and_then(Value::as_str).and_then(LeaseToken::parse)
    }
}

/// Usage in a request.
pub(super) struct Usage<'f> {
    /// The position of its fields in the body, put in front of their names in errors.
    pub(super) path: &'f str,
    pub(super) model: &'f str,
    /// Numbers in the range of [`UNITS`].
    pub(super) units: &'f Map<String, Value>,
}

const USAGE: &str = "usage";
const MODEL: &str = "model";
/// The fields of a request that has usage.
pub(super) const USAGE_FIELDS: [&str; 2] = [MODEL, USAGE];

impl Fields {
    /// Whether this request has usage, also in a list.
    pub(super) fn have_usage(&self) -> bool {
        let in_list = |value: &Value| {
            value.as_array().is_some_and(|elements| elements.iter().any(|element| element.get(USAGE).is_some()))
        };
        self.read.iter().any(|(name, value)| name == USAGE || in_list(value))
    }

    /// Replaces the usage by the amount that it costs, also in lists.
    pub(super) fn price(self, cost: &dyn Fn(Usage<'_>) -> Result<f64, Problem>) -> Result<Fields, Problem> {
        self.price_at("", cost)
    }

    fn price_at(mut self, path: &str, cost: &dyn Fn(Usage<'_>) -> Result<f64, Problem>) -> Result<Fields, Problem> {
        if let Some(units) = self.get(USAGE).and_then(Value::as_object) {
            let amount = cost(Usage { path, model: self.id(MODEL), units })?;
            let priced = |field: &&Field| field.kind == FieldKind::Amount && field.alternatives.contains(&USAGE);
            let priced = self.table.iter().find(priced).map(|field| field.name.to_owned());
            self.read.retain(|(name, _)| !USAGE_FIELDS.contains(&&**name));
            self.read.extend(priced.map(|name| (name, amount.into())));
        }
        for (name, value) in &mut self.read {
            let field = self.table.iter().find(|field| field.name == name);
            let (Some(FieldKind::List { fields, .. }), Value::Array(elements)) = (field.map(|field| field.kind), value)
            else {
                continue;
            };
            for (index, element) in elements.iter_mut().enumerate() {
                let at = format!("{path}{name}[{index}]");
                let priced = Fields::of_element(fields, &at, element)?.price_at(&format!("{at}."), cost)?;
                *element = Value::Object(priced.read.into_iter().collect());
            }
        }
        Ok(self)
    }
}

fn missing(path: &str, name: &str, why: &str) -> Problem {
    Problem::of_field(ProblemKind::MissingField, &format!("{path}{name}"), why)
}

fn unknown(table: &[Field], path: &str, name: &str) -> Problem {
    let names = table.iter().map(|field| field.name);
    let why = match nearest(name, names.clone()) {
        Some(near) => format!("is unknown (did you mean `{near}`?)"),
        None if table.is_empty() => "is unknown; no fields are expected".to_owned(),
        None => format!("is unknown; known: {}", names.collect::<Vec<_>>().join(", ")),
    };
    Problem::of_field(ProblemKind::UnknownField, &format!("{path}{}", cut(name)), &why)
}

/// The maximum length of quoted input, in characters.
const SHOWN: usize = 60;

fn cut(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

/// Renders a value for an error message, truncated.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => {
            let text = other.to_string();
            let more = if cut(&text).len() < text.len() { "…" } else { "" };
            format!("{}{more}", escaped(cut(&text)))
        }
    }
}

/// The members of an object in order, including duplicates.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object like {\"permits\": 1}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Field] = &[
        Field::required("client", FieldKind::Id, ""),
        Field::required("wants", FieldKind::Amount, ""),
        Field::optional("permits", FieldKind::Whole { least: 1, most: 10 }, "").or(1.0),
        Field::optional("wait", FieldKind::Seconds { least: 0.0, most: 60.0 }, "").or(0.0),
        Field::optional("token", FieldKind::LeaseToken, ""),
    ];

    fn read(body: &str) -> Result<Fields, String> {
        Fields::of_body(TABLE, body.as_bytes()).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn fields_are_read_and_missing_ones_have_defaults() {
        let fields = read(r#"{"client": "a\u00fc", "wants": 1e3, "permits": 3.0}"#).expect("valid");
        assert_eq!((fields.id("client"), fields.number("wants"), fields.number("permits")), ("a\u{fc}", 1000.0, 3.0));
        assert_eq!((fields.number("wait"), fields.lease("token")), (0.0, None));
    }

    #[test]
    fn errors_name_the_field() {
        for (body, says) in [
            (r#"{"client": "a"}"#, "`wants` is missing; expected a number from 0 to 1e15"),
            (r#"{"client": 7, "wants": 1}"#, "`client` is 7; expected a string of 1 to 256 bytes"),
            (r#"{"client": "", "wants": 1}"#, "`client` is "),
            (r#"{"client": "a", "wants": "1"}"#, "`wants` is "),
            (r#"{"client": "a", "wants": -1}"#, "`wants` is -1"),
            (r#"{"client": "a", "wants": 1e16}"#, "`wants` is "),
            (r#"{"client": "a", "wants": null}"#, "`wants` is null"),
            (r#"{"client": "a", "wants": []}"#, "`wants` is a list"),
            (r#"{"client": "a", "wants": 1, "wants": 2}"#, "`wants` is given twice"),
            (r#"{"client": "a", "wants": 1, "wantss": 2}"#, "did you mean `wants`?"),
            (r#"{"client": "a", "wants": 1, "\u001b[2J": 2}"#, "known: client, wants, permits, wait, token"),
            (r#"{"client": "a", "wants": 1, "permits": 1.5}"#, "a whole number from 1 to 10"),
            (r#"{"client": "a", "wants": 1, "permits": 11}"#, "`permits` is 11"),
            (r#"{"client": "a", "wants": 1, "wait": 61}"#, "a number of seconds from 0 to 60"),
            (r#"{"client": "a", "wants": 1, "token": "x"}"#, "`token` is "),
            ("[]", "expected an object"),
            ("{", "is not a JSON object"),
            ("{} {}", "is not a JSON object"),
            ("\u{1f600}", "is not a JSON object"),
        ] {
            let problem = read(body).map(|_| ()).expect_err(body);
            assert!(problem.contains(says), "{body}: {problem}");
            assert!(!problem.contains('\u{1b}'), "{problem}");
        }
    }

    #[test]
    fn one_of_two_fields_is_given() {
        const ONE_OF: &[Field] =
            &[Field::required("wants", FieldKind::Amount, "").or_fields(&["permits"]), TABLE[2].or_fields(&["wants"])];
        let read = |body: &str| Fields::of_body(ONE_OF, body.as_bytes()).map_err(|problem| format!("{problem:?}"));
        let wants = read(r#"{"wants": 0.5}"#).expect("valid");
        assert_eq!((wants.number_if_given("wants"), wants.number_if_given("permits")), (Some(0.5), None));
        assert_eq!(read(r#"{"permits": 2}"#).expect("valid").number_if_given("wants"), None);
        for (body, says) in [
            (r#"{"permits": 1, "wants": 0.5}"#, "`wants` excludes `permits`; give only one of them"),
            (r#"{"wants": 0.5, "permits": 1}"#, "`permits` excludes `wants`; give only one of them"),
            ("{}", "`wants` is missing; expected a number from 0 to 1e15, or `permits`"),
        ] {
            let problem = read(body).map(|_| ()).expect_err(body);
            assert!(problem.contains(says), "{body}: {problem}");
        }
    }

    #[test]
    fn lists_are_read_and_errors_name_the_element() {
        const ELEMENT: &[Field] = &[TABLE[0], TABLE[2]];
        const LIST: &[Field] = &[Field::required("limits", FieldKind::List { fields: ELEMENT, most: 2 }, "")];
        let read = |body: &str| Fields::of_body(LIST, body.as_bytes()).map_err(|problem| format!("{problem:?}"));
        let list =
            read(r#"{"limits": [{"client": "a", "permits": 3}, {"client": "b"}]}"#).expect("valid").list("limits");
        let read_back: Vec<_> = list.iter().map(|fields| (fields.id("client"), fields.number("permits"))).collect();
        assert_eq!(read_back, [("a", 3.0), ("b", 1.0)]);
        for (limits, says) in [
            ("7", "`limits` is 7; expected a list of 1 to 2 objects"),
            ("[]", "`limits` is a list; expected a list of 1 to 2 objects"),
            (r#"[{"client": "a"}, {"client": "a"}, {"client": "a"}]"#, "expected a list of 1 to 2 objects"),
            (r#"[{"client": "a"}, 7]"#, "`limits[1]` is 7; expected an object"),
            (r#"[{"permits": 1}]"#, "`limits[0].client` is missing"),
            (r#"[{"client": "a"}, {"client": "a", "permits": 11}]"#, "`limits[1].permits` is 11"),
            (r#"[{"client": "a", "permit": 1}]"#, "`limits[0].permit` is unknown (did you mean `permits`?)"),
        ] {
            let problem = read(&format!(r#"{{"limits": {limits}}}"#)).map(|_| ()).expect_err(limits);
            assert!(problem.contains(says), "{limits}: {problem}");
        }
    }

    #[test]
    fn hostile_bodies_are_refused_and_quoted_briefly() {
        let deep = format!(r#"{{"client": {}"#, "[".repeat(10_000));
        let long = format!(r#"{{"{}": 1}}"#, "x".repeat(10_000));
        let long_value = format!(r#"{{"client": "{}"}}"#, "\u{fc}".repeat(10_000));
        for body in [&deep, &long, &long_value] {
            assert!(read(body).expect_err("invalid").len() < 1000);
        }
        assert!(Fields::of_body(TABLE, b"{\"client\": \"\xff\"}").is_err());
    }

    #[test]
    fn a_body_may_be_empty_and_fields_may_be_in_the_query() {
        const OPTIONAL: &[Field] = &[Field::optional("permits", FieldKind::Whole { least: 1, most: 10 }, "").or(1.0)];
        assert_eq!(Fields::of_body(OPTIONAL, b" \n").expect("all fields are optional").number("permits"), 1.0);
        let query = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Fields::of_query(&TABLE[..1], pairs.collect())
        };
        assert_eq!(query(&[("client", "a")]).expect("valid").id("client"), "a");
        assert!(query(&[]).is_err() && query(&[("client", "a"), ("b", "c")]).is_err());
        assert!(query(&[("client", "a"), ("client", "b")]).is_err());
    }
}
