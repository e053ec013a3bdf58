//! `leaseway transfer`: another peer becomes master on purpose.

use clap::Args;
use leaseway_core::escaped;
use leaseway_proto::admin::{TransferMastershipRequest, TransferMastershipResponse};
use serde_json::{Value, json};

use crate::{Outcome, connect::block_on, operate::admin::AdminTarget, output::Output};

/// Moves mastership to another peer, which has everything that was acknowledged. The one before stays a peer
#[derive(Args)]
#[command(after_help = "\
Leases go on: the next master knows what was promised. A peer that is stopped hands mastership over by itself; to stop
all in turn, stop the others first, then transfer to one of them, then stop the last.")]
pub(crate) struct Transfer {
    /// Which peer is to be master [default: the one with most of the log]
    peer: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Transfer {
    pub(crate) fn run(self) -> Outcome {
        let request = TransferMastershipRequest { to: self.peer.unwrap_or_default() };
        let answer = block_on(self.target.ask_once(async |mut client| {
            let request = request.clone();
            client.transfer_mastership(request).await
        }))?;
        self.output.print(|| as_text(&answer), || as_json(&answer))
    }
}

fn as_text(answer: &TransferMastershipResponse) -> String {
    let TransferMastershipResponse { master, master_grpc_address: clients, took_ms, .. } = answer;
    let (master, clients) = (escaped(master), escaped(clients));
    format!("{master} is master now, after {took_ms} ms without one; clients reach it at {clients}")
}

fn as_json(answer: &TransferMastershipResponse) -> Value {
    json!({
        "master": answer.master, "master_grpc_address": answer.master_grpc_address,
        "master_admin_address": answer.master_admin_address, "took_ms": answer.took_ms,
    })
}
