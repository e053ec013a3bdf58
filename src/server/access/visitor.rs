//! Who calls on a connection, found once and not with every call.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use leaseway_core::access::{AccessRequest, Action, Identity};
use serde_json::Value;
use tonic::Status;

use super::{CLOSED, CredentialError, Gate, Subject};
use crate::{
    accounts::{Account, Origin},
    audit::Event,
    listen::Caller,
    metrics::CallKind,
    open_connections::Ending,
};

/// The other end of a connection, and who it was found to be.
pub(crate) struct Visitor {
    gate: Arc<Gate>,
    /// None of a call that came past the listeners.
    caller: Option<Caller>,
    last: Mutex<Option<Recognised>>,
}

/// What a call carried, and who that proves the caller to be.
#[derive(Clone)]
struct Recognised {
    header: Option<HeaderValue>,
    expires: Option<SystemTime>,
    subject: Arc<Subject>,
}

impl Visitor {
    pub(crate) fn new(gate: Arc<Gate>, caller: Option<Caller>) -> Visitor {
        Visitor { gate, caller, last: Mutex::default() }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.caller.as_ref().map(|caller| caller.address)
    }

    /// Who makes a call with these headers; none while everything is allowed.
    pub(crate) fn subject(&self, headers: &HeaderMap, call: CallKind) -> Result<Option<Arc<Subject>>, Status> {
        if self.gate.is_open() {
            return Ok(None);
        }
        let found = self.recognise(headers.get(AUTHORIZATION));
        found.map(Some).map_err(|error| self.gate.refuse(self.address(), call, &error))
    }

    /// As [`subject`](Self::subject), for a call that is decided further in.
    pub(crate) fn admit(self: &Arc<Self>, headers: &HeaderMap, call: CallKind) -> Result<Admitted, Status> {
        let subject = self.subject(headers, call)?;
        Ok(Admitted { visitor: Arc::clone(self), header: headers.get(AUTHORIZATION).cloned(), subject })
    }

    fn recognise(&self, header: Option<&HeaderValue>) -> Result<Arc<Subject>, CredentialError> {
        let version = self.gate.version();
        let mut last = self.last.lock().expect("no panic while a visitor is looked at");
        let is_the_same = |last: &&Recognised| {
            last.header.as_ref() == header
                && last.subject.version() == version
                && last.expires.is_none_or(|expires| SystemTime::now() < expires)
        };
        if let Some(last) = last.as_ref().filter(is_the_same) {
            return Ok(Arc::clone(&last.subject));
        }
        let state = self.gate.state().clone();
        let proved = state.credentials.identify(header, self.caller.as_ref(), SystemTime::now())?;
        let policy = state.policy.unwrap_or_default();
        let permissions = policy.of(&proved.identity);
        let account = self.account(&proved.identity);
        let subject = Arc::new(Subject::new(permissions, self.address(), account, state.changes));
        let header = header.cloned();
        *last = Some(Recognised { header, expires: proved.expires, subject: Arc::clone(&subject) });
        Ok(subject)
    }
}

impl Visitor {
    /// What an identity has, to which its connection is counted, too. One that has its share of connections goes on
    /// with others.
    fn account(&self, identity: &Identity) -> Option<Arc<Account>> {
        let (Identity::Named(name), Some(caller)) = (identity, &self.caller) else { return None };
        let account = self.gate.accounts().of_identity(name);
        if !caller.connection.count_to(&account) {
            caller.connection.end(Ending::Soon);
        }
        Some(account)
    }
}

/// A call under way, and who makes it.
#[derive(Clone)]
pub(crate) struct Admitted {
    visitor: Arc<Visitor>,
    header: Option<HeaderValue>,
    subject: Option<Arc<Subject>>,
}

impl Admitted {
    /// A call that nothing is known of; denied once there is a policy.
    pub(crate) fn unknown(gate: &Arc<Gate>) -> Admitted {
        let visitor = Arc::new(Visitor::new(Arc::clone(gate), None));
        let subject = visitor.subject(&HeaderMap::new(), CallKind::Other).ok().flatten();
        Admitted { visitor, header: None, subject }
    }

    /// None while everything is allowed.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        self.subject.as_deref()
    }

    fn address(&self) -> Option<IpAddr> {
        self.visitor.address()
    }

    /// To whom what it leaves behind is counted, and where it comes from; none if neither is known.
    pub(crate) fn origin(&self) -> Option<Origin> {
        let subject = self.subject().and_then(Subject::origin);
        subject.or_else(|| Some(self.visitor.caller.as_ref()?.origin()))
    }

    /// Who calls, for the audit log: what a token or certificate proves is known also where no policy asks for it.
    fn identity(&self) -> Identity {
        match &self.subject {
            Some(subject) => subject.permissions().identity().clone(),
            None => {
                let credentials = Arc::clone(&self.visitor.gate.state().credentials);
                let proved =
                    credentials.identify(self.header.as_ref(), self.visitor.caller.as_ref(), SystemTime::now());
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

    /// Whether the call may do this, where it is no matter that it may not.
    pub(crate) fn may(&self, request: &AccessRequest<'_>) -> bool {
        self.subject().is_none_or(|subject| subject.permissions().decide(request).allowed)
    }

    /// Whether the call may do one of these; a denial names the first.
    pub(crate) fn check_any(&self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        self.visitor.gate.check_any(subject, call, requests)
    }

    /// Whether the call may do anything at all.
    pub(crate) fn check_known(&self, call: CallKind) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        self.visitor.gate.check_known(subject, call)
    }

    /// Whether the call may read all there is.
    pub(crate) fn check_reads_everything(&self, call: CallKind) -> Result<(), Status> {
        let Some(subject) = self.subject() else { return Ok(()) };
        if subject.permissions().covers_everything(Action::Read) {
            return Ok(());
        }
        let why = format!(
            "`{}` may not read this: no rule that is for all resources lets it `read`",
            subject.permissions().identity()
        );
        Err(self.visitor.gate.deny(subject, call, &why))
    }

    /// As [`check_any`](Self::check_any), for a stream that goes on: under what is in force by now.
    pub(crate) fn check_again(&mut self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        self.subject = match self.visitor.gate.is_open() {
            true => None,
            false => {
                let found = self.visitor.recognise(self.header.as_ref());
                Some(found.map_err(|error| self.visitor.gate.refuse(self.visitor.address(), call, &error))?)
            }
        };
        self.check_any(call, requests)
    }
}

impl Gate {
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
        crate::metrics::entries_denied(call, before - requests.len() - 1);
        if requests.is_empty() { Err(denied) } else { Ok(()) }
    }
}
