//! Authenticates the caller once per connection instead of with every call.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use leaseway_core::policy::access::{AccessRequest, Action, Identity, Permissions};
use serde_json::Value;
use tonic::Status;

use super::{Authorizer, CLOSED, CredentialError};
use crate::{
    listen::{
        Caller,
        accounts::{Account, RequestOrigin},
        open_connections::Ending,
    },
    observe::{
        audit::Event,
        metrics::{self, CallKind},
    },
};

/// The caller of a connection, and its newest credentials.
pub(crate) struct CallerCache {
    authorizer: Arc<Authorizer>,
    /// `None` for a call that did not come through a listener.
    caller: Option<Caller>,
    last: Mutex<LastCalls>,
}

/// The newest valid and the newest invalid credentials.
#[derive(Default)]
struct LastCalls {
    recognised: Option<Recognised>,
    refused: Option<RefusedToken>,
}

/// A valid authorization header, and its subject.
struct Recognised {
    header: Option<HeaderValue>,
    subject: Arc<Subject>,
}

/// An invalid token. It is not checked again for a while, because a check costs more than a call.
struct RefusedToken {
    header: HeaderValue,
    version: u64,
    until: Instant,
    why: Arc<CredentialError>,
}

/// How long an invalid token is refused without another check.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Minimum interval between checks of a stream's credentials.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl CallerCache {
    pub(crate) fn new(authorizer: Arc<Authorizer>, caller: Option<Caller>) -> CallerCache {
        CallerCache { authorizer, caller, last: Mutex::default() }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.caller.as_ref().map(|caller| caller.address)
    }

    /// Authenticates a call by its authorization header. `None` if everything is allowed.
    pub(crate) fn authenticate(
        &self,
        header: Option<&HeaderValue>,
        call: CallKind,
    ) -> Result<Option<Arc<Subject>>, Status> {
        if self.authorizer.is_open() || self.caller.as_ref().is_some_and(|caller| caller.is_in_process) {
            return Ok(None);
        }
        self.recognise(header).map(Some).map_err(|error| self.authorizer.refuse(self.address(), call, &error))
    }

    /// As [`authenticate`](Self::authenticate), for a call whose actions are checked later.
    pub(crate) fn admit(self: &Arc<Self>, headers: &HeaderMap, call: CallKind) -> Result<Admitted, Status> {
        let header = headers.get(AUTHORIZATION);
        let subject = self.authenticate(header, call)?;
        Ok(Admitted { caller_cache: Arc::clone(self), header: header.cloned(), subject })
    }

    fn recognise(&self, header: Option<&HeaderValue>) -> Result<Arc<Subject>, Arc<CredentialError>> {
        let version = self.authorizer.version();
        let mut last = self.last.lock().expect("no panic while the credentials are locked");
        let is_the_same = |last: &&Recognised| {
            last.header.as_ref() == header
                && last.subject.version == version
                && last.subject.expires.is_none_or(|expires| SystemTime::now() < expires)
        };
        if let Some(recognised) = last.recognised.as_ref().filter(is_the_same) {
            return Ok(Arc::clone(&recognised.subject));
        }
        let is_refused = |refused: &&RefusedToken| {
            Some(&refused.header) == header && refused.version == version && Instant::now() < refused.until
        };
        if let Some(refused) = last.refused.as_ref().filter(is_refused) {
            return Err(Arc::clone(&refused.why));
        }
        let state = self.authorizer.state().clone();
        let proved = match state.credentials.identify(header, self.caller.as_ref(), SystemTime::now()) {
            Ok(proved) => proved,
            Err(error) => {
                let why = Arc::new(error);
                last.refused = header.map(|header| self.refused_token(header, state.changes, &why));
                return Err(why);
            }
        };
        let subject = Arc::new(Subject {
            permissions: state.policy.unwrap_or_default().of(&proved.identity),
            address: self.address(),
            account: self.account(&proved.identity),
            expires: proved.expires,
            version: state.changes,
        });
        last.recognised = Some(Recognised { header: header.cloned(), subject: Arc::clone(&subject) });
        Ok(subject)
    }

    /// Counts an invalid token against the connection.
    #[cold]
    fn refused_token(&self, header: &HeaderValue, version: u64, why: &Arc<CredentialError>) -> RefusedToken {
        if let Some(caller) = &self.caller {
            caller.connection.refused_token();
        }
        let until = Instant::now() + REFUSED_FOR;
        RefusedToken { header: header.clone(), version, until, why: Arc::clone(why) }
    }

    /// Returns the account of an identity, and charges the connection to it from now on. If the identity has used up
    /// its share of connections, this connection is closed soon.
    fn account(&self, identity: &Identity) -> Option<Arc<Account>> {
        let (Identity::Named(name), Some(caller)) = (identity, &self.caller) else { return None };
        let account = self.authorizer.accounts().of_identity(name);
        if !caller.connection.count_to(&account) {
            caller.connection.end(Ending::Soon);
        }
        Some(account)
    }
}

/// An authenticated caller with its permissions.
#[derive(Debug)]
pub(crate) struct Subject {
    permissions: Permissions,
    pub(super) address: Option<IpAddr>,
    /// The account of the identity. `None` if the account of the connection is charged.
    account: Option<Arc<Account>>,
    /// When it must be authenticated again.
    expires: Option<SystemTime>,
    /// The version of policy and credentials.
    pub(super) version: u64,
}

impl Subject {
    /// The origin of its calls. `None` if it is that of the connection.
    pub(crate) fn origin(&self) -> Option<RequestOrigin> {
        Some(RequestOrigin { address: self.address?, principal: self.account.as_ref()?.principal() })
    }

    pub(crate) fn permissions(&self) -> &Permissions {
        &self.permissions
    }
}

/// A call under way, and its caller.
#[derive(Clone)]
pub(crate) struct Admitted {
    caller_cache: Arc<CallerCache>,
    header: Option<HeaderValue>,
    subject: Option<Arc<Subject>>,
}

impl Admitted {
    /// A call of an unknown caller, which any policy denies.
    pub(crate) fn unknown(authorizer: &Arc<Authorizer>) -> Admitted {
        let caller_cache = Arc::new(CallerCache::new(Arc::clone(authorizer), None));
        let subject = caller_cache.authenticate(None, CallKind::Other).ok().flatten();
        Admitted { caller_cache, header: None, subject }
    }

    /// `None` if everything is allowed.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        self.subject.as_deref()
    }

    fn address(&self) -> Option<IpAddr> {
        self.caller_cache.address()
    }

    /// The address and the principal that is charged, if they are known.
    pub(crate) fn origin(&self) -> Option<RequestOrigin> {
        let subject = self.subject().and_then(Subject::origin);
        subject.or_else(|| Some(self.caller_cache.caller.as_ref()?.origin()))
    }

    /// The identity for the audit log, which is known even without a policy.
    fn identity(&self) -> Identity {
        match &self.subject {
            Some(subject) => subject.permissions().identity().clone(),
            None => {
                let credentials = Arc::clone(&self.caller_cache.authorizer.state().credentials);
                let proved =
                    credentials.identify(self.header.as_ref(), self.caller_cache.caller.as_ref(), SystemTime::now());
                proved.map_or(Identity::Anonymous, |proved| proved.identity)
            }
        }
    }

    /// An audit event for the call.
    pub(crate) fn event(&self, what: &'static str, outcome: Result<(), String>, details: Value) -> Event {
        let outcome = outcome.err().unwrap_or_else(|| "done".to_owned());
        Event { who: self.identity(), address: self.address(), what, outcome, details }
    }

    /// Whether the call may do this. A denial is counted and audited.
    pub(crate) fn check(&self, call: CallKind, request: &AccessRequest<'_>) -> Result<(), Status> {
        self.check_any(call, std::slice::from_ref(request))
    }

    /// As [`check`](Self::check), but cached.
    pub(crate) fn check_remembered(&self, call: CallKind, request: &AccessRequest<'_>) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        let authorizer = &self.caller_cache.authorizer;
        if authorizer.allows(subject, request) { Ok(()) } else { authorizer.check_any(subject, call, &[*request]) }
    }

    /// As [`check`](Self::check), but a denial is neither counted nor audited.
    pub(crate) fn may(&self, request: &AccessRequest<'_>) -> bool {
        self.subject().is_none_or(|subject| subject.permissions().decide(request).allowed)
    }

    /// Succeeds if the policy allows any of the requests. The error names the first.
    pub(crate) fn check_any(&self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        self.caller_cache.authorizer.check_any(subject, call, requests)
    }

    /// Whether the call may do anything at all.
    pub(crate) fn check_known(&self, call: CallKind) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        self.caller_cache.authorizer.check_known(subject, call)
    }

    /// Whether the call may do something to all resources.
    pub(crate) fn check_everything(&self, call: CallKind, action: Action) -> Result<(), Status> {
        let covers = |subject: &&Subject| subject.permissions().covers_everything(action);
        let Some(subject) = self.subject().filter(|subject| !covers(subject)) else { return Ok(()) };
        let (who, action) = (subject.permissions().identity(), action.name());
        let why = format!(
            "`{who}` may not use a pattern for this: no rule for all resources allows it to `{action}`; give the id of \
             one resource"
        );
        Err(self.caller_cache.authorizer.deny(subject, call, &why))
    }

    /// The identity, for display.
    pub(crate) fn name(&self) -> String {
        self.identity().to_string()
    }

    /// Whether the call may read everything. A denial is neither counted nor audited.
    pub(crate) fn reads_everything(&self) -> bool {
        self.subject().is_none_or(|subject| subject.permissions().covers_everything(Action::Read))
    }

    /// Whether the call may read everything.
    pub(crate) fn check_reads_everything(&self, call: CallKind) -> Result<(), Status> {
        let Some(subject) = self.subject().filter(|_| !self.reads_everything()) else { return Ok(()) };
        let why = format!(
            "`{}` may not read this: no rule for all resources allows it to `read`",
            subject.permissions().identity()
        );
        Err(self.caller_cache.authorizer.deny(subject, call, &why))
    }

    /// Waits until the decision must be repeated: the policy or the tokens have changed, or the credentials have
    /// expired.
    pub(crate) async fn until_outdated(&self) {
        let subject = self.subject();
        let version = subject.map_or(0, |subject| subject.version);
        let mut versions = self.caller_cache.authorizer.versions.subscribe();
        // The authorizer outlives its callers.
        let is_another = async { drop(versions.wait_for(|now| *now != version).await) };
        match subject.and_then(|subject| subject.expires) {
            None => is_another.await,
            Some(expires) => {
                let left = expires.duration_since(SystemTime::now()).unwrap_or_default().max(MIN_RECHECK_INTERVAL);
                // Boxed, because few streams have an expiry.
                let _ = Box::pin(tokio::time::timeout(left, is_another)).await;
            }
        }
    }

    /// As [`check_any`](Self::check_any), by the newest policy and credentials, for an open stream.
    pub(crate) fn check_again(&mut self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        self.subject = self.caller_cache.authenticate(self.header.as_ref(), call)?;
        self.check_any(call, requests)
    }
}

impl Authorizer {
    /// Whether a caller may do anything at all.
    pub(crate) fn check_known(&self, subject: &Subject, call: CallKind) -> Result<(), Status> {
        if !subject.permissions().is_empty() {
            return Ok(());
        }
        self.check_any(subject, call, &[AccessRequest::to(Action::Ask)])
    }

    fn check_any(&self, subject: &Subject, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        let permissions = subject.permissions();
        let mut first = None;
        for request in requests {
            match permissions.check(request) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(self.deny(subject, call, &self.with_reason(first.unwrap_or_default())))
    }

    /// Adds to a denial that a policy is missing, if it is; a missing rule is then not the reason.
    fn with_reason(&self, why: String) -> String {
        if self.is_closed() { format!("{why}; access is {CLOSED}") } else { why }
    }

    /// Removes requests that are not allowed, and calls `said` with the reason for each. Denies the call if none is
    /// left.
    pub(crate) fn retain<T>(
        &self,
        subject: &Subject,
        call: CallKind,
        requests: &mut Vec<T>,
        asks: impl Fn(&T) -> AccessRequest<'_>,
        mut said: impl FnMut(&T, &str),
    ) -> Result<(), Status> {
        let (before, mut first) = (requests.len(), None);
        requests.retain(|request| {
            let asked = asks(request);
            let ceiling = self.ceiling(subject, &asked);
            if ceiling.is_some_and(|ceiling| asked.priority.is_none_or(|priority| priority <= ceiling)) {
                return true;
            }
            let why = subject.permissions().check(&asked).err().unwrap_or_default();
            said(request, &why);
            first.get_or_insert(why);
            false
        });
        let Some(first) = first else { return Ok(()) };
        let denied = self.deny(subject, call, &self.with_reason(first));
        metrics::entries_denied(call, before - requests.len() - 1);
        if requests.is_empty() { Err(denied) } else { Ok(()) }
    }
}
