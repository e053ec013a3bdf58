//! Settings: `key=value` strings.

use std::{ffi::c_char, str::FromStr, time::Duration};

use leaseway_client::{Client, ClientTls, Credentials, Files, Mode, ResourceBuilder, Token, limiter::Burst};

use crate::{
    error::CallError,
    handle::{text, texts},
};

/// Longer durations are cut to this, so that they can be added to any time.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 86_400);

pub(crate) struct Settings<'a> {
    /// Settings that were given and not read yet.
    given: Vec<(&'a str, &'a str)>,
    /// The names of the settings that the function accepts.
    known: Vec<&'static str>,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(given: &[&'a str]) -> Result<Settings<'a>, CallError> {
        let split = |given: &&'a str| {
            given.split_once('=').ok_or_else(|| CallError::invalid(format!("setting `{given}`: expected key=value")))
        };
        Ok(Settings { given: given.iter().map(split).collect::<Result<_, _>>()?, known: Vec::new() })
    }

    fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, CallError> {
        self.known.push(key);
        let found = self.given.iter().position(|(given, _)| *given == key);
        let value = found.map(|found| self.given.remove(found).1);
        if found.is_some() && self.given.iter().any(|(given, _)| *given == key) {
            return Err(CallError::invalid(format!("setting `{key}` is given twice")));
        }
        Ok(value)
    }

    fn value<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let value =
            read(text).ok_or_else(|| CallError::invalid(format!("setting `{key}={text}`: expected {expected}")))?;
        Ok(Some(value))
    }

    fn seconds(&mut self, key: &'static str) -> Result<Option<Duration>, CallError> {
        self.value(key, "seconds, 0 or more", |text| text.parse().ok().and_then(seconds))
    }

    fn mode(&mut self) -> Result<Option<Mode>, CallError> {
        self.value("mode", "safe, pessimistic or optimistic", |name| match name {
            "safe" => Some(Mode::Safe),
            "pessimistic" => Some(Mode::Pessimistic),
            "optimistic" => Some(Mode::Optimistic),
            _ => None,
        })
    }

    /// Fails if an unknown setting was given.
    fn end(self) -> Result<(), CallError> {
        let Some((key, value)) = self.given.first() else { return Ok(()) };
        Err(CallError::invalid(format!("setting `{key}={value}`: expected one of {}", self.known.join(", "))))
    }
}

/// A duration in seconds.
pub(crate) fn seconds(seconds: f64) -> Option<Duration> {
    let is_span = seconds >= 0.0;
    is_span.then(|| Duration::try_from_secs_f64(seconds).unwrap_or(MAX_DURATION).min(MAX_DURATION))
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Settings with an environment variable and a default.
const VARIABLES: [(&str, &str, Option<&str>); 7] = [
    ("servers", "LEASEWAY_SERVER", Some("127.0.0.1:5100")),
    ("tls", "LEASEWAY_TLS", None),
    ("tls_ca", "LEASEWAY_TLS_CA", None),
    ("tls_cert", "LEASEWAY_TLS_CERT", None),
    ("tls_key", "LEASEWAY_TLS_KEY", None),
    ("tls_server_name", "LEASEWAY_TLS_SERVER_NAME", None),
    ("token_file", "LEASEWAY_TOKEN_FILE", None),
];

/// Settings from the environment for those that are missing in `given`, if that contains `env=true`.
pub(crate) fn environment(given: &[&str], variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_given = |key: &str| given.iter().any(|one| one.split_once('=').is_some_and(|(given, _)| given == key));
    if !given.contains(&"env=true") {
        return Vec::new();
    }
    let is_missing = |key: &str| !(is_given(key) || key == "token_file" && is_given("token"));
    let missing = VARIABLES.into_iter().filter(|(key, ..)| is_missing(key));
    let found = missing.filter_map(|(key, name, default)| {
        let value = variable(name).filter(|value| !value.is_empty()).or_else(|| default.map(str::to_owned));
        value.map(|value| format!("{key}={value}"))
    });
    found.collect()
}

/// Builds a client.
pub(crate) fn client(mut settings: Settings<'_>) -> Result<Client, CallError> {
    let servers = settings.text("servers")?.unwrap_or_default();
    let mut builder = Client::builder().endpoints(servers.split(',').filter(|one| !one.is_empty()));
    if let Some(id) = settings.text("id")? {
        builder = builder.id(id);
    }
    if let Some(mode) = settings.mode()? {
        builder = builder.mode(mode);
    }
    if let Some(deadline) = settings.seconds("deadline")? {
        builder = builder.deadline(deadline);
    }
    if let Some(pause) = settings.seconds("backoff_max")? {
        builder = builder.backoff_max(pause);
    }
    if let Some(interval) = settings.seconds("refresh_min")? {
        builder = builder.refresh_min(interval);
    }
    if let Some(tls) = tls(&mut settings)? {
        builder = builder.tls(&tls);
    }
    if let Some(token) = token(&mut settings)? {
        builder = builder.token(&token);
    }
    // Handled in `environment` already.
    settings.value("env", "true or false", number::<bool>)?;
    settings.end()?;
    Ok(builder.build_blocking()?)
}

fn tls(settings: &mut Settings<'_>) -> Result<Option<ClientTls>, CallError> {
    let asked = settings.value("tls", "true or false", number)?.unwrap_or(false);
    let ca = settings.text("tls_ca")?.map(Into::into);
    let certificate = settings.text("tls_cert")?.map(Into::into);
    let files = Files { certificate, key: settings.text("tls_key")?.map(Into::into), ca };
    let name = settings.text("tls_server_name")?;
    if !asked && !files.are_given() && name.is_none() {
        return Ok(None);
    }
    Ok(Some(ClientTls::new(&Credentials::load(files)?, name)?))
}

fn token(settings: &mut Settings<'_>) -> Result<Option<Token>, CallError> {
    match (settings.text("token")?, settings.text("token_file")?) {
        (Some(_), Some(_)) => {
            Err(CallError::invalid("settings `token` and `token_file` exclude each other: pass only one of them"))
        }
        (Some(token), None) => Ok(Some(Token::new(token)?)),
        (None, Some(file)) => Ok(Some(Token::file(file)?)),
        (None, None) => Ok(None),
    }
}

/// Reads the arguments that open a resource.
pub(crate) unsafe fn resource<'a>(
    client: &Client,
    id: *const c_char,
    settings: *const *const c_char,
) -> Result<(ResourceBuilder, Settings<'a>), CallError> {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    let id = unsafe { text(id, "the resource") }?;
    // SAFETY: guaranteed by the caller, see the crate documentation.
    let given = unsafe { texts(settings, "a setting") }?;
    Ok((client.resource(id), Settings::read(&given)?))
}

/// Applies the settings of a rate.
pub(crate) fn rate(mut builder: ResourceBuilder, mut settings: Settings<'_>) -> Result<ResourceBuilder, CallError> {
    let permits = settings.value("burst", "permits, 0 or more", |text| {
        number(text).filter(|permits: &f64| permits.is_finite() && *permits >= 0.0)
    })?;
    builder = match (permits, settings.seconds("window")?) {
        (Some(_), Some(_)) => {
            return Err(CallError::invalid("settings `burst` and `window` exclude each other: pass only one of them"));
        }
        (Some(permits), None) => builder.burst(Burst::Permits(permits)),
        (None, Some(window)) => builder.burst(Burst::Window(window)),
        (None, None) => builder,
    };
    if let Some(permits) = settings.value("max_debt", "a whole number, 0 or more", number)? {
        builder = builder.max_debt(permits);
    }
    gauge(builder, settings)
}

/// Applies the settings of a gauge.
pub(crate) fn gauge(mut builder: ResourceBuilder, mut settings: Settings<'_>) -> Result<ResourceBuilder, CallError> {
    if let Some(wants) = settings.value("wants", "a number", number)? {
        builder = builder.wants(wants);
    }
    if let Some(priority) = settings.value("priority", "a whole number", number)? {
        builder = builder.priority(priority);
    }
    if let Some(mode) = settings.mode()? {
        builder = builder.mode(mode);
    }
    settings.end()?;
    Ok(builder)
}
