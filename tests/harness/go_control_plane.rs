//! A control plane made of go-control-plane, the library of most control planes: the program in
//! `tests/go/controlplane`.

use std::net::SocketAddr;

use leaseway_tls::Files;
use serde_json::{Value, json};

use super::{foreign, process::Process, tls::text, wait::eventually};

pub(crate) struct GoControlPlane {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl GoControlPlane {
    /// `service` is `ads` or `rls`. With files it uses TLS.
    pub(crate) fn start(address: &str, service: &str, files: Option<&Files>) -> GoControlPlane {
        let pair = files.and_then(|files| Some([text(files.certificate.as_ref()?), text(files.key.as_ref()?)]));
        let pair: Vec<&str> = pair.iter().flatten().map(String::as_str).collect();
        let program = foreign::path("LEASEWAY_TEST_GO_CONTROL_PLANE");
        let process = Process::start_program_reading(&program, &[&[address, service, "gw-1"], &pair[..]].concat());
        let address = eventually("the control plane prints its address", || {
            assert!(process.ended().is_none(), "the control plane exited during startup: {}", process.stderr());
            process.stdout().split_once('\n')?.0.parse().ok()
        });
        GoControlPlane { process, address }
    }

    /// Makes this the snapshot of the node `gw-1`. `configs` is in the JSON form of protobuf.
    pub(crate) fn set(&mut self, version: &str, configs: &Value) {
        self.process.tell(&format!("{}\n", json!({ "version": version, "configs": configs })));
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.process.stdout().lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
