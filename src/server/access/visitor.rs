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

use super::{CLOSED, CredentialError, Gate, Principal};
use crate::{audit::Event, listen::Caller, metrics::CallKind};

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
    principal: Arc<Principal>,
}

impl Visitor {
    pub(crate) fn new(gate: Arc<Gate>, caller: Option<Caller>) -> Visitor {
        Visitor { gate, caller, last: Mutex::default() }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.caller.as_ref().map(|caller| caller.address)
    }

    /// Who makes a call with these headers; none while everything is allowed.
    pub(crate) fn principal(&self, headers: &HeaderMap, call: CallKind) -> Result<Option<Arc<Principal>>, Status> {
        if self.gate.is_open() {
            return Ok(None);
        }
        let found = self.recognise(headers.get(AUTHORIZATION));
        found.map(Some).map_err(|error| self.gate.refuse(self.address(), call, &error))
    }

    /// As [`principal`](Self::principal), for a call that is decided further in.
    pub(crate) fn admit(self: &Arc<Self>, headers: &HeaderMap, call: CallKind) -> Result<Admitted, Status> {
        let principal = self.principal(headers, call)?;
        Ok(Admitted { visitor: Arc::clone(self), header: headers.get(AUTHORIZATION).cloned(), principal })
    }

    fn recognise(&self, header: Option<&HeaderValue>) -> Result<Arc<Principal>, CredentialError> {
        let version = self.gate.version();
        let mut last = self.last.lock().expect("no panic while a visitor is looked at");
        let is_the_same = |last: &&Recognised| {
            last.header.as_ref() == header
                && last.principal.version() == version
                && last.expires.is_none_or(|expires| SystemTime::now() < expires)
        };
        if let Some(last) = last.as_ref().filter(is_the_same) {
            return Ok(Arc::clone(&last.principal));
        }
        let state = self.gate.state().clone();
        let proved = state.credentials.identify(header, self.caller.as_ref(), SystemTime::now())?;
        let policy = state.policy.unwrap_or_default();
        let permissions = policy.of(&proved.identity);
        let principal = Arc::new(Principal::new(permissions, self.address(), state.changes));
        let header = header.cloned();
        *last = Some(Recognised { header, expires: proved.expires, principal: Arc::clone(&principal) });
        Ok(principal)
    }
}

/// A call under way, and who makes it.
#[derive(Clone)]
pub(crate) struct Admitted {
    visitor: Arc<Visitor>,
    header: Option<HeaderValue>,
    principal: Option<Arc<Principal>>,
}

impl Admitted {
    /// A call that nothing is known of; denied once there is a policy.
    pub(crate) fn unknown(gate: &Arc<Gate>) -> Admitted {
        let visitor = Arc::new(Visitor::new(Arc::clone(gate), None));
        let principal = visitor.principal(&HeaderMap::new(), CallKind::Other).ok().flatten();
        Admitted { visitor, header: None, principal }
    }

    /// None while everything is allowed.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.as_deref()
    }

    fn address(&self) -> Option<IpAddr> {
        self.visitor.address()
    }

    /// Who calls, for the audit log: what a token or certificate proves is known also where no policy asks for it.
    fn identity(&self) -> Identity {
        match &self.principal {
            Some(principal) => principal.permissions().identity().clone(),
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

    /// As [`check`](Self::check), for what is asked again and again.
    pub(crate) fn check_remembered(&self, call: CallKind, request: &AccessRequest<'_>) -> Result<(), Status> {
        let Some(principal) = self.principal() else { return Ok(()) };
        let gate = &self.visitor.gate;
        if gate.allows(principal, request) { Ok(()) } else { gate.check_any(principal, call, &[*request]) }
    }

    /// Whether the call may do this, where it is no matter that it may not.
    pub(crate) fn may(&self, request: &AccessRequest<'_>) -> bool {
        self.principal().is_none_or(|principal| principal.permissions().decide(request).allowed)
    }

    /// Whether the call may do one of these; a denial names the first.
    pub(crate) fn check_any(&self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        let Some(principal) = self.principal() else { return Ok(()) };
        self.visitor.gate.check_any(principal, call, requests)
    }

    /// Whether the call may do anything at all.
    pub(crate) fn check_known(&self, call: CallKind) -> Result<(), Status> {
        let Some(principal) = self.principal() else { return Ok(()) };
        self.visitor.gate.check_known(principal, call)
    }

    /// Whether the call may read all there is.
    pub(crate) fn check_reads_everything(&self, call: CallKind) -> Result<(), Status> {
        let Some(principal) = self.principal() else { return Ok(()) };
        if principal.permissions().covers_everything(Action::Read) {
            return Ok(());
        }
        let why = format!(
            "`{}` may not read this: no rule that is for all resources lets it `read`",
            principal.permissions().identity()
        );
        Err(self.visitor.gate.deny(principal, call, &why))
    }

    /// As [`check_any`](Self::check_any), for a stream that goes on: under what is in force by now.
    pub(crate) fn check_again(&mut self, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        self.principal = match self.visitor.gate.is_open() {
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
    pub(crate) fn check_known(&self, principal: &Principal, call: CallKind) -> Result<(), Status> {
        if !principal.permissions().is_empty() {
            return Ok(());
        }
        self.check_any(principal, call, &[AccessRequest::to(Action::Ask)])
    }

    fn check_any(&self, principal: &Principal, call: CallKind, requests: &[AccessRequest<'_>]) -> Result<(), Status> {
        let permissions = principal.permissions();
        let mut first = None;
        for request in requests {
            match permissions.check(request) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(self.deny(principal, call, &self.with_reason(first.unwrap_or_default())))
    }

    /// Where nothing at all is allowed a rule is not what is missing.
    fn with_reason(&self, why: String) -> String {
        if self.is_closed() { format!("{why}; access is {CLOSED}") } else { why }
    }

    /// Keeps those of several requests that are allowed. `said` is told of the others. If there were some and none is
    /// left, the call is denied.
    pub(crate) fn retain<T>(
        &self,
        principal: &Principal,
        call: CallKind,
        requests: &mut Vec<T>,
        asks: impl Fn(&T) -> AccessRequest<'_>,
        mut said: impl FnMut(&T, &str),
    ) -> Result<(), Status> {
        let (before, mut first) = (requests.len(), None);
        requests.retain(|request| {
            let asked = asks(request);
            let ceiling = self.ceiling(principal, &asked);
            if ceiling.is_some_and(|ceiling| asked.priority.is_none_or(|priority| priority <= ceiling)) {
                return true;
            }
            let why = principal.permissions().check(&asked).err().unwrap_or_default();
            said(request, &why);
            first.get_or_insert(why);
            false
        });
        let Some(first) = first else { return Ok(()) };
        let denied = self.deny(principal, call, &self.with_reason(first));
        crate::metrics::entries_denied(call, before - requests.len() - 1);
        if requests.is_empty() { Err(denied) } else { Ok(()) }
    }
}
