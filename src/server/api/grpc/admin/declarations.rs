//! Declarations: templates that gateways derive from their rules.

use std::sync::Arc;

use leaseway_core::policy::access::{AccessRequest, Action};
use leaseway_proto::admin::{
    Declaration, DeclareTemplatesRequest, DeclareTemplatesResponse, ListDeclarationsRequest, ListDeclarationsResponse,
};
use leaseway_raft::Declaration as Stored;
use serde_json::json;
use tonic::Status;

use super::AdminService;
use crate::{
    api::grpc::{not_master_status, proposal_failed},
    auth::Admitted,
    node::{
        NodeHandle,
        declarations::{DeclareError, Declared},
    },
    observe::metrics::CallKind,
};

impl AdminService {
    /// Declares templates. Audits changes only, because gateways repeat refused declarations.
    pub(super) async fn declare_and_record(
        &self,
        admitted: &Admitted,
        request: DeclareTemplatesRequest,
    ) -> Result<DeclareTemplatesResponse, Status> {
        let DeclareTemplatesRequest { name, version, text } = request;
        let what = if text.is_some() { "templates_declared" } else { "declaration_deleted" };
        let details = json!({ "name": name, "version": version });
        let name: Arc<str> = name.into();
        let before = self.node.declarations().get(&name).map(|known| Arc::clone(&known.text));
        let declared = self.declare(admitted, Arc::clone(&name), version, text.as_deref()).await?;
        let Declared { version, changed } = declared;
        if !changed {
            return Ok(DeclareTemplatesResponse { version, changed, unlimited: Vec::new() });
        }
        self.record(admitted, what, Ok(()), details);
        let unlimited = before.map(|before| unlimited(&self.node, &name, &before)).unwrap_or_default();
        Ok(DeclareTemplatesResponse { version, changed, unlimited })
    }

    /// The caller needs the right for the patterns that it declares, and for those that it replaces.
    async fn declare(
        &self,
        admitted: &Admitted,
        name: Arc<str>,
        version: u64,
        text: Option<&str>,
    ) -> Result<Declared, Status> {
        let known = self.node.declarations().get(&name).map(|known| Arc::clone(&known.text));
        for text in text.into_iter().chain(known.as_deref()) {
            check_patterns(admitted, &name, text)?;
        }
        admitted.check(CallKind::Config, &AccessRequest::to(Action::Declare))?;
        self.has_configurations()?;
        self.node.declare(name, version, text, admitted.name().into()).await.map_err(|error| refusal(&error))
    }
}

/// The patterns of a former declaration that no template matches now. A pattern is taken for an id: templates that
/// match only some of its resources do not count.
fn unlimited(node: &NodeHandle, name: &Arc<str>, before: &str) -> Vec<String> {
    let config = node.config();
    let patterns = NodeHandle::declared_patterns(name, before).unwrap_or_default();
    patterns.into_iter().filter(|pattern| config.template_settings(pattern).is_none()).collect()
}

fn check_patterns(admitted: &Admitted, name: &Arc<str>, text: &str) -> Result<(), Status> {
    for pattern in NodeHandle::declared_patterns(name, text).map_err(|error| refusal(&error))? {
        admitted.check(CallKind::Config, &AccessRequest::on(Action::Declare, &pattern))?;
    }
    Ok(())
}

/// Lists the declarations. With a name, only this one with its text.
pub(super) fn list(node: &NodeHandle, request: &ListDeclarationsRequest) -> Result<ListDeclarationsResponse, Status> {
    let stored = node.declarations();
    let name = request.name.as_str();
    let shown = stored.iter().filter(|(known, _)| name.is_empty() || &***known == name);
    let declaration = |(known, declaration): (&Arc<str>, &Stored)| {
        let Stored { version, text, at_unix, by } = declaration;
        Declaration {
            name: known.to_string(),
            version: *version,
            templates: NodeHandle::declared_patterns(known, text).map_or(0, |patterns| patterns.len() as u64),
            text: if name.is_empty() { String::new() } else { text.to_string() },
            at_unix: *at_unix,
            by: by.to_string(),
        }
    };
    Ok(ListDeclarationsResponse { declaration: shown.map(declaration).collect() })
}

fn refusal(error: &DeclareError) -> Status {
    match error {
        DeclareError::NotMaster(why) => not_master_status(why),
        DeclareError::HasParent(_) => Status::failed_precondition(error.to_string()),
        DeclareError::Name(_)
        | DeclareError::TooLong { .. }
        | DeclareError::Invalid(_)
        | DeclareError::NoVersion(_) => Status::invalid_argument(error.to_string()),
        DeclareError::Older { .. } => Status::aborted(error.to_string()),
        DeclareError::Full { .. } => Status::resource_exhausted(error.to_string()),
        DeclareError::Proposal(error) => proposal_failed(error),
    }
}
