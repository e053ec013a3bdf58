//! Authentication and authorization.
//!
//! A call is decided in two steps. The [`CallerCache`] of a connection authenticates the caller: by a bearer token,
//! else by the certificate, else the caller is anonymous. It caches the [`Subject`] until the token, the policy or the
//! token files change. The second step checks each action of the call against the permissions of the subject.
//!
//! Without a policy both steps are skipped, at the cost of one atomic load ([`Authorizer::is_open`]).

mod caller_cache;
mod credentials;
mod decision_cache;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod jwt;
mod tokens;

use std::{
    net::IpAddr,
    sync::{
        Arc, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, header::AUTHORIZATION};
use leaseway_core::policy::access::{AccessRequest, Policy};
use tokio::sync::watch;
use tonic::Status;

use self::credentials::CredentialError;
use self::decision_cache::DecisionCache;
pub(crate) use self::{
    caller_cache::{Admitted, CallerCache, Subject},
    credentials::{CredentialFiles, Credentials},
};
pub use self::{jwt::JwtOptions, tokens::NewToken};
use crate::{
    listen::accounts::Accounts,
    observe::{
        audit::{Audit, Event},
        metrics::{self, CallKind},
    },
};

/// The reason for denials if a required policy is missing.
const CLOSED: &str = "closed: there is no policy (`access:`), and other machines can reach this server";

/// Decides whether calls are allowed. Shared by all listeners of a server.
pub(crate) struct Authorizer {
    /// The number of changes of the policy and of credentials. 0 means that everything is allowed.
    version: AtomicU64,
    /// The same number, for tasks that wait for a change.
    versions: watch::Sender<u64>,
    state: RwLock<AuthorizerState>,
    decided: DecisionCache,
    /// Whether everything is allowed without a policy. If not, nothing is.
    opens_without_policy: bool,
    /// Whether the server listens beyond loopback without TLS or a policy (`--insecure`).
    is_exposed: bool,
    audit: Audit,
    accounts: Arc<Accounts>,
}

#[derive(Clone)]
struct AuthorizerState {
    changes: u64,
    policy: Option<Arc<Policy>>,
    credentials: Arc<Credentials>,
}

impl Authorizer {
    pub(crate) fn new(
        credentials: Credentials,
        opens_without_policy: bool,
        is_exposed: bool,
        audit: Audit,
        accounts: Arc<Accounts>,
    ) -> Authorizer {
        let credentials = Arc::new(credentials);
        let authorizer = Authorizer {
            version: AtomicU64::new(0),
            versions: watch::Sender::new(0),
            state: RwLock::new(AuthorizerState { changes: 0, policy: None, credentials }),
            decided: DecisionCache::new(),
            opens_without_policy,
            is_exposed,
            audit,
            accounts,
        };
        authorizer.set_policy(None);
        authorizer
    }

    /// Without a policy everything is allowed. There are no tokens and no audit log.
    #[cfg(test)]
    pub(crate) fn open() -> Authorizer {
        Authorizer::new(Credentials::default(), true, false, Audit::none(), Arc::default())
    }

    fn state(&self) -> RwLockReadGuard<'_, AuthorizerState> {
        self.state.read().expect("no panic while the state is locked")
    }

    fn change(&self, change: impl FnOnce(&mut AuthorizerState)) {
        let mut state = self.state.write().expect("no panic while the state is locked");
        change(&mut state);
        state.changes += 1;
        let is_open = state.policy.is_none() && self.opens_without_policy;
        let version = if is_open { 0 } else { state.changes };
        self.version.store(version, Ordering::Release);
        self.versions.send_replace(version);
    }

    /// Puts a policy in force for new calls and open streams.
    pub(crate) fn set_policy(&self, policy: Option<Arc<Policy>>) {
        self.change(|state| state.policy = policy);
    }

    /// Replaces the credentials that callers are authenticated by.
    pub(crate) fn set_credentials(&self, credentials: Credentials) {
        self.change(|state| state.credentials = Arc::new(credentials));
    }

    /// Whether a call carries the operator's token. True if the server has none.
    pub(crate) fn is_operators(&self, headers: &HeaderMap) -> bool {
        self.state().credentials.is_operators(headers.get(AUTHORIZATION))
    }

    pub(crate) fn has_operators_token(&self) -> bool {
        self.state().credentials.has_operators_token()
    }

    /// Whether everything is allowed.
    pub(crate) fn is_open(&self) -> bool {
        self.version() == 0
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether nothing is allowed, because a required policy is missing.
    fn is_closed(&self) -> bool {
        !self.opens_without_policy && self.state().policy.is_none()
    }

    /// Refuses a configuration that would allow nothing.
    pub(crate) fn check_policy(&self, source: &str, policy: Option<&Arc<Policy>>) -> Result<(), String> {
        if policy.is_some() || self.opens_without_policy {
            return Ok(());
        }
        Err(format!(
            "{source}:1:1: missing `access`: other machines can reach this server, so it denies everything without a policy"
        ))
    }

    /// A description of the policy. Empty if everything is allowed and the server listens on loopback only.
    pub(crate) fn in_words(&self) -> String {
        let policy = match &self.state().policy {
            Some(policy) if policy.rules().len() == 1 => "by 1 rule".to_owned(),
            Some(policy) => format!("by {} rules", policy.rules().len()),
            None if !self.opens_without_policy => CLOSED.to_owned(),
            None if self.is_exposed => "open: there is no policy".to_owned(),
            None => String::new(),
        };
        if self.is_exposed { format!("{policy} (--insecure: reachable from other machines)") } else { policy }
    }

    fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Whether the subject may make this request. Cached.
    fn allows(&self, subject: &Subject, request: &AccessRequest<'_>) -> bool {
        /// Stands for any holder in cached questions. No holder has this name.
        const ANY: &str = "";
        let permissions = subject.permissions();
        let (holder, resource) = (request.holder.unwrap_or(ANY), request.resource.unwrap_or_default());
        let question = (subject.version, permissions.identity(), request.action, holder, resource);
        self.decided.get(question, || permissions.check(request).is_ok().then_some(0)).is_some()
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The highest priority that the subject may make this request with, if any. Cached.
    fn ceiling(&self, subject: &Subject, request: &AccessRequest<'_>) -> Option<i16> {
        let (resource, holder) = (request.resource.unwrap_or_default(), request.holder.unwrap_or_default());
        let permissions = subject.permissions();
        self.decided.get((subject.version, permissions.identity(), request.action, holder, resource), || {
            permissions.ceiling(request.action, resource, holder)
        })
    }

    /// Counts and audits a denial.
    #[cold]
    fn deny(&self, subject: &Subject, call: CallKind, why: &str) -> Status {
        metrics::access_denied(call);
        self.audit.denied(subject.permissions().identity(), subject.address, call.name(), why);
        Status::permission_denied(format!("denied: {why}"))
    }

    pub(crate) fn record(&self, event: Event) {
        self.audit.record(event);
    }

    /// Counts and audits an invalid credential.
    #[cold]
    fn refuse(&self, address: Option<IpAddr>, call: CallKind, error: &CredentialError) -> Status {
        metrics::access_denied(call);
        let why = error.to_string();
        self.audit.refused(address, call.name(), &why);
        match error {
            CredentialError::TooMany => Status::resource_exhausted(why),
            _ => Status::unauthenticated(why),
        }
    }
}
