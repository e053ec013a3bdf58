//! Declares the templates that follow from the rules to the cluster, so that limits are written in one place.
//!
//! Each domain is a declaration of its own, `rls/DOMAIN`. Its version is the time at which the rules were written: of
//! gateways with different rules, those with the newest win. A declaration that fails is repeated. The rules in force
//! here do not wait for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{
    Transport,
    transport::{MasterReply, follow_redirects},
};
use leaseway_core::types::escaped;
use leaseway_proto::admin::{
    DeclareTemplatesRequest, DeclareTemplatesResponse, MASTER_METADATA, node_client::NodeClient,
};
use metrics::{counter, gauge};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tonic::{Code, Status};

use super::{
    backoff,
    current::CurrentRules,
    rules::{Domain, RequestLimit, Rules},
    templates,
};
use crate::{resource_id, root_cause};

/// Where the gateway declares templates.
#[derive(Debug)]
pub struct DeclareOptions {
    /// Admin addresses of peers, as `host:port`. Any of them redirects to the master.
    pub addresses: Vec<String>,
    pub transport: Transport,
}

/// The result of the last attempt, for readiness probes.
#[derive(Debug, Default)]
pub struct DeclareStatus(Mutex<Option<String>>);

/// Includes the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Peers store a declaration before they answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a call to one peer.
type Outcome = MasterReply<DeclareTemplatesResponse, String>;

/// Templates in force at the cluster.
struct Declared {
    version: u64,
    text: String,
}

struct Declarer {
    options: DeclareOptions,
    /// The address that answered last.
    master: Option<String>,
    /// By name.
    declared: BTreeMap<String, Declared>,
}

impl DeclareStatus {
    /// Why the cluster does not have the templates for the rules in force, if it does not.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the problem is another one than before.
    fn set(&self, problem: Option<String>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = *known != problem;
        *known = problem;
        differs
    }
}

/// Declares the templates for the rules in force, and again when these change.
pub(crate) async fn run(options: DeclareOptions, rules: Arc<CurrentRules>, status: Arc<DeclareStatus>) {
    let mut declarer = Declarer { options, master: None, declared: BTreeMap::new() };
    let mut changes = rules.changes();
    rules.note_declared(0);
    loop {
        let count = *changes.borrow_and_update();
        let limits = rules.request_limits();
        let wanted = rules.with(|rules| (!rules.not_loaded()).then(|| (wanted(rules, &limits), rules.written_unix_ms)));
        if let Some((wanted, written)) = wanted {
            gauge!("leaseway_rls_declared").set(0.0);
            if declarer.declare_until_done(&wanted, written, &status, &mut changes).await {
                rules.note_declared(count);
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The texts of declarations by name.
fn wanted(rules: &Rules, request_limits: &BTreeSet<RequestLimit>) -> BTreeMap<String, String> {
    let of_domain = |domain: &Domain| Some((name_of(&domain.name), templates::declaration(domain)?));
    let in_force = request_limits.iter().filter(|limit| rules.domain(&limit.domain).is_some());
    let of_requests = in_force.map(|limit| {
        // A declaration of its own, because gateways see different limits.
        let name = format!("{}/{}-per-{}", name_of(&limit.domain), limit.requests, limit.unit.name());
        (name, templates::declaration_of_request_limit(limit))
    });
    rules.domains().filter_map(of_domain).chain(of_requests).collect()
}

fn name_of(domain: &str) -> String {
    format!("rls/{}", resource_id::of(domain, []))
}

impl Declarer {
    /// Repeats what fails until all is declared, or the rules change. Returns whether all is declared.
    async fn declare_until_done(
        &mut self,
        wanted: &BTreeMap<String, String>,
        written: u64,
        status: &DeclareStatus,
        changes: &mut watch::Receiver<u64>,
    ) -> bool {
        let mut failures = 0;
        while let Err(why) = self.declare_all(wanted, written).await {
            failures += 1;
            let pause = backoff(failures, fastrand::f64());
            if status.set(Some(why.clone())) {
                tracing::warn!(
                    "{why}; the rules are in force at this gateway, and the cluster keeps its earlier templates; \
                     retrying"
                );
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = changes.changed() => {
                    changes.mark_changed();
                    return false;
                }
            }
        }
        status.set(None);
        gauge!("leaseway_rls_declared").set(1.0);
        true
    }

    /// Declares what the cluster does not have yet, and removes domains that are gone. Returns the first error.
    async fn declare_all(&mut self, wanted: &BTreeMap<String, String>, written: u64) -> Result<(), String> {
        let mut first = Ok(());
        let known: BTreeSet<&String> = wanted.keys().collect();
        let gone: Vec<String> = self.declared.keys().filter(|name| !known.contains(name)).cloned().collect();
        let steps = wanted.iter().map(|(name, text)| (name, Some(text))).chain(gone.iter().map(|name| (name, None)));
        for (name, text) in steps {
            let before = self.declared.get(name);
            if before.is_some_and(|before| Some(&before.text) == text) {
                continue;
            }
            // Rules that this gateway reloaded are newer than those before, even if their files have older times.
            let version = written.max(before.map_or(1, |before| before.version.saturating_add(1)));
            let outcome = match self.step(name, version, text).await {
                Ok(()) => "accepted",
                Err(why) => {
                    first = first.and(Err(format!("cannot declare the templates of `{}`: {why}", escaped(name))));
                    "failed"
                }
            };
            counter!("leaseway_rls_declarations_total", "outcome" => outcome).increment(1);
        }
        first
    }

    async fn step(&mut self, name: &str, version: u64, text: Option<&String>) -> Result<(), String> {
        let request = DeclareTemplatesRequest { name: name.to_owned(), version, text: text.cloned() };
        let DeclareTemplatesResponse { version, changed, .. } = self.call(request).await?;
        match text {
            Some(text) => drop(self.declared.insert(name.to_owned(), Declared { version, text: text.clone() })),
            None => drop(self.declared.remove(name)),
        }
        let what = if text.is_some() { "declared" } else { "removed" };
        tracing::info!(name, version, changed, "templates {what} at the cluster");
        Ok(())
    }

    /// Calls the peers in turn, and the master that they name.
    async fn call(&mut self, request: DeclareTemplatesRequest) -> Result<DeclareTemplatesResponse, String> {
        let addresses: Vec<String> = self.master.take().into_iter().chain(self.options.addresses.clone()).collect();
        let mut last = "no admin address is known".to_owned();
        for address in addresses {
            let transport = &self.options.transport;
            let (address, outcome) =
                follow_redirects(address.into(), |at| call_at(transport, at, request.clone())).await;
            match outcome {
                Outcome::Answer(answer) => {
                    self.master = Some(address.to_string());
                    return Ok(answer);
                }
                Outcome::Never(why) => return Err(format!("{address}: {why}")),
                Outcome::Elsewhere(_) => {}
                Outcome::NotNow(why) => last = format!("{address}: {why}"),
            }
        }
        Err(last)
    }
}

async fn call_at(transport: &Transport, address: Arc<str>, request: DeclareTemplatesRequest) -> Outcome {
    let connecting = transport.connect(&address, |endpoint| endpoint.connect_timeout(CONNECT_TIMEOUT));
    let call = async {
        let channel = match connecting.await {
            Ok(channel) => channel,
            Err(error) => return Outcome::NotNow(root_cause(&error)),
        };
        match NodeClient::new(channel).declare_templates(request).await {
            Ok(answer) => Outcome::Answer(answer.into_inner()),
            Err(status) => refused(&status),
        }
    };
    let late = |_| Outcome::NotNow(format!("no answer in {} s", CALL_TIMEOUT.as_secs()));
    timeout(CALL_TIMEOUT, call).await.unwrap_or_else(late)
}

/// Classifies an error that a peer has returned.
fn refused(status: &Status) -> Outcome {
    let master = status.metadata().get(MASTER_METADATA).and_then(|master| master.to_str().ok());
    let message = || format!("{} ({:?})", escaped(status.message()), status.code());
    match (status.code(), master) {
        (Code::FailedPrecondition, Some(master)) if !master.is_empty() => Outcome::Elsewhere(master.into()),
        (Code::FailedPrecondition, Some(_)) => Outcome::NotNow(message()),
        (Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown, _) => {
            let has_cause = iter::successors(std::error::Error::source(status), |error| error.source()).count() > 0;
            Outcome::NotNow(if has_cause { root_cause(status) } else { message() })
        }
        (Code::Unimplemented, _) => Outcome::NotNow(
            "this server takes no declarations: pass the admin address of a server with --data (--declare-admin)"
                .into(),
        ),
        (Code::Unauthenticated, _) => Outcome::Never(format!("{}: check --declare-token-file", message())),
        _ => Outcome::Never(message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rls::{file::parse, rules::Unit};

    #[test]
    fn each_domain_with_limits_is_declared_under_its_name() {
        let mut rules = Rules::default();
        for text in [
            "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 60}}]",
            "domain: a/b\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]",
            "domain: free\ndescriptors: [{key: user, rate_limit: {unlimited: true}}]",
        ] {
            rules.add(parse("rules.yaml", text.as_bytes()).expect("rules").domain);
        }
        let limit = |domain: &str| RequestLimit { domain: domain.into(), requests: 30, unit: Unit::Minute };
        let wanted = wanted(&rules, &["shop", "gone"].map(limit).into());
        assert_eq!(wanted.keys().collect::<Vec<_>>(), ["rls/a%2Fb", "rls/shop", "rls/shop/30-per-minute"]);
        let of_requests = &wanted["rls/shop/30-per-minute"];
        let expected = "identifier_glob: \"shop/~limit=30-per-minute*\"\n  capacity: 0.5\n";
        assert!(of_requests.contains(expected), "{of_requests}");
        let shop = &wanted["rls/shop"];
        assert!(shop.contains("identifier_glob: \"shop/user=*\"\n  capacity: 1\n"), "{shop}");
    }

    #[test]
    fn refusals_are_told_apart() {
        let redirect = |address: &str| {
            let mut status = Status::failed_precondition("not the master");
            status.metadata_mut().insert(MASTER_METADATA, address.parse().expect("ASCII"));
            refused(&status)
        };
        assert_eq!(redirect("10.0.0.1:5160"), Outcome::Elsewhere("10.0.0.1:5160".into()));
        assert!(matches!(redirect(""), Outcome::NotNow(_)), "there is no master");
        for (status, says) in [
            (Status::failed_precondition("the templates come from the parent"), "the parent"),
            (Status::aborted("version 7 of `rls/shop`"), "version 7"),
            (Status::permission_denied("may not declare"), "may not declare"),
            (Status::unauthenticated("missing token"), "--declare-token-file"),
        ] {
            assert!(matches!(refused(&status), Outcome::Never(why) if why.contains(says)), "{status}");
        }
        for status in [Status::unavailable("no master"), Status::unimplemented("")] {
            assert!(matches!(refused(&status), Outcome::NotNow(_)), "{status}");
        }
    }
}
