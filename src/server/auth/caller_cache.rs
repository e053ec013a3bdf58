//! Who calls on a connection, found once and not with every call.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use leaseway_core::access::{AccessRequest, Action, Identity};
use serde_json::Value;
use tonic::Status;

use super::{Authorizer, CLOSED, CredentialError, Subject};
use crate::{
    listen::{
        Caller,
        accounts::{Account, RequestOrigin},
        open_connections::Ending,
    },
    observe::{audit::Event, metrics::CallKind},
};

/// The other end of a connection, and who it was found to be.
pub(crate) struct CallerCache {
    authorizer: Arc<Authorizer>,
    /// None of a call that came past the listeners.
    caller: Option<Caller>,
    last: Mutex<LastCalls>,
}

/// What calls carried, and what became of it.
#[derive(Default)]
struct LastCalls {
    recognised: Option<Recognised>,
    refused: Option<RefusedToken>,
}

/// What a call carried, and who that proves the caller to be.
struct Recognised {
    header: Option<HeaderValue>,
    subject: Arc<Subject>,
}

/// What a call carried that proves nothing. It is not looked at again for a moment: that costs more than to carry it.
struct RefusedToken {
    header: HeaderValue,
    version: u64,
    until: Instant,
    why: Arc<CredentialError>,
}

/// For so long a token that was refused stays so without being looked at.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// A stream looks again at what its caller has proved no sooner than this.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl CallerCache {
    pub(crate) fn new(authorizer: Arc<Authorizer>, caller: Option<Caller>) -> CallerCache {
        CallerCache { authorizer, caller, last: Mutex::default() }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.caller.as_ref().map(|caller| caller.address)
    }

    fn may_do_everything(&self) -> bool {
        self.authorizer.is_open() || self.caller.as_ref().is_some_and(|caller| caller.is_in_process)
    }

    /// Who makes a call with these headers; none while everything is allowed.
    pub(crate) fn subject(&self, headers: &HeaderMap, call: CallKind) -> Result<Option<Arc<Subject>>, Status> {
        if self.may_do_everything() {
            return Ok(None);
        }
        let found = self.recognise(headers.get(AUTHORIZATION));
        found.map(Some).map_err(|error| self.authorizer.refuse(self.address(), call, &error))
    }

    /// As [`subject`](Self::subject), for a call that is decided further in.
    pub(crate) fn admit(self: &Arc<Self>, headers: &HeaderMap, call: CallKind) -> Result<Admitted, Status> {
        let subject = self.subject(headers, call)?;
        Ok(Admitted { caller_cache: Arc::clone(self), header: headers.get(AUTHORIZATION).cloned(), subject })
    }

    fn recognise(&self, header: Option<&HeaderValue>) -> Result<Arc<Subject>, Arc<CredentialError>> {
        let version = self.authorizer.version();
        let mut last = self.last.lock().expect("no panic while a visitor is looked at");
        let is_the_same = |last: &&Recognised| {
            last.header.as_ref() == header
                && last.subject.version() == version
                && last.subject.expires().is_none_or(|expires| SystemTime::now() < expires)
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
        let policy = state.policy.unwrap_or_default();
        let permissions = policy.of(&proved.identity);
        let account = self.account(&proved.identity);
        let subject = Subject::new(permissions, self.address(), account, proved.expires, state.changes);
        let subject = Arc::new(subject);
        last.recognised = Some(Recognised { header: header.cloned(), subject: Arc::clone(&subject) });
        Ok(subject)
    }
}

impl CallerCache {
    /// A token proves nothing: that is remembered, and counted against the connection.
    #[cold]
    fn refused_token(&self, header: &HeaderValue, version: u64, why: &Arc<CredentialError>) -> RefusedToken {
        if let Some(caller) = &self.caller {
            caller.connection.refused_token();
        }
        let until = Instant::now() + REFUSED_FOR;
        RefusedToken { header: header.clone(), version, until, why: Arc::clone(why) }
    }

    /// What an identity has, to which its connection is counted, too. One that has its share of connections goes on
    /// with others.
    fn account(&self, identity: &Identity) -> Option<Arc<Account>> {
        let (Identity::Named(name), Some(caller)) = (identity, &self.caller) else { return None };
        let account = self.authorizer.accounts().of_identity(name);
        if !caller.connection.count_to(&account) {
            caller.connection.end(Ending::Soon);
        }
        Some(account)
    }
}

/// A call under way, and who makes it.
#[derive(Clone)]
pub(crate) struct Admitted {
    caller_cache: Arc<CallerCache>,
    header: Option<HeaderValue>,
    subject: Option<Arc<Subject>>,
}

impl Admitted {
    /// A call that nothing is known of; denied once there is a policy.
    pub(crate) fn unknown(authorizer: &Arc<Authorizer>) -> Admitted {
        let caller_cache = Arc::new(CallerCache::new(Arc::clone(authorizer), None));
        let subject = caller_cache.subject(&HeaderMap::new(), CallKind::Other).ok().flatten();
        Admitted { caller_cache, header: None, subject }
    }

    /// None while everything is allowed.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        self.subject.as_deref()
    }

    fn address(&self) -> Option<IpAddr> {
        self.caller_cache.address()
    }

    /// To whom what it leaves behind is counted, and where it comes from; none if neither is known.
    pub(crate) fn origin(&self) -> Option<RequestOrigin> {
        let subject = self.subject().and_then(Subject::origin);
        subject.or_else(|| Some(self.caller_cache.caller.as_ref()?.origin()))
    }

    /// Who calls, for the audit log: what a token or certificate proves is known also where no policy asks for it.
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

    /// What the call has done, for the audit log.
    pub(crate) fn event(&self, what: &'static str, outcome: Result<(), String>, details: Value) -> Event {
        let outcome = outcome.err().unwrap_or_else(|| "done".to_owned());
        Event { who: self.identity(), address: self.address(), what, outcome, details }
    }

    /// Whether the call may do this.
    pub(crate) fn check(&self, call: CallKind, request: &AccessRequest<'_>) -> Result<(), Status> {
        self.check_any(call, std::slice::from_ref(request))
    }

    /// As [`check`](Self::check), for what is asked again and again.
    pub(crate) fn check_remembered(&self, call: CallKind, request: &AccessRequest<'_>) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        let authorizer = &self.caller_cache.authorizer;
        if authorizer.allows(subject, request) { Ok(()) } else { authorizer.check_any(subject, call, &[*request]) }
    }

    /// Whether the call may do this, where it is no matter that it may not.
    pub(crate) fn may(&self, request: &AccessRequest<'_>) -> bool {
        self.subject().is_none_or(|subject| subject.permissions().decide(request).allowed)
    }

    /// Whether the call may do one of these; a denial names the first.
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
            "`{who}` may not do this to all that a pattern matches: no rule that is for all resources lets it \
             `{action}`; name one resource"
        );
        Err(self.caller_cache.authorizer.deny(subject, call, &why))
    }

    /// Who calls, for people.
    pub(crate) fn name(&self) -> String {
        self.identity().to_string()
    }

    /// Whether the call may read all there is, where it is no matter that it may not.
    pub(crate) fn reads_everything(&self) -> bool {
        self.subject().is_none_or(|subject| subject.permissions().covers_everything(Action::Read))
    }

    /// Whether the call may read all there is.
    pub(crate) fn check_reads_everything(&self, call: CallKind) -> Result<(), Status> {
        let Some(subject) = self.subject().filter(|_| !self.reads_everything()) else { return Ok(()) };
        let why = format!(
            "`{}` may not read this: no rule that is for all resources lets it `read`",
            subject.permissions().identity()
        );
        Err(self.caller_cache.authorizer.deny(subject, call, &why))
    }

    /// Waits until what was decided may be decided otherwise: another policy or other tokens are in force, or what the
    /// caller has proved has to be proved again.
    pub(crate) async fn until_outdated(&self) {
        let subject = self.subject();
        let version = subject.map_or(0, Subject::version);
        let mut versions = self.caller_cache.authorizer.versions.subscribe();
        // The gate outlives its visitors.
        let is_another = async { drop(versions.wait_for(|now| *now != version).await) };
        match subject.and_then(Subject::expires) {
            None => is_another.await,
            Some(expires) => {
                let left = expires.duration_since(SystemTime::now()).unwrap_or_default().max(MIN_RECHECK_INTERVAL);
                // Boxed: few streams have one.
                let _ = Box::pin(tokio::time::timeout(left, is_another)).await;
            }
        }
    }

    /// As [`check_any`](Self::check_any), for a stream that goes on: under what is in force by now.
    pub(crate) fn check_again(&mut self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        self.subject =
            match self.caller_cache.may_do_everything() {
                true => None,
                false => {
                    let found = self.caller_cache.recognise(self.header.as_ref());
                    Some(found.map_err(|error| {
                        self.caller_cache.authorizer.refuse(self.caller_cache.address(), call, &error)
                    })?)
                }
            };
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

    /// Where nothing at all is allowed a rule is not what is missing.
    fn with_reason(&self, why: String) -> String {
        if self.is_closed() { format!("{why}; access is {CLOSED}") } else { why }
    }

    /// Keeps those of several requests that are allowed. `said` is told of the others. If there were some and none is
    /// left, the call is denied.
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
        crate::observe::metrics::entries_denied(call, before - requests.len() - 1);
        if requests.is_empty() { Err(denied) } else { Ok(()) }
    }
}
