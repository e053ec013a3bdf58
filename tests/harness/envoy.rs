//! A real Envoy.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{foreign, server::free_addresses, wait::eventually};

pub(crate) struct Envoy {
    child: Child,
    directory: TempDir,
    admin: SocketAddr,
    /// The address of its listener.
    pub(crate) listener: SocketAddr,
}

impl Envoy {
    /// Starts Envoy and waits until its listener serves. `config` renders `static_resources:` for an address.
    pub(crate) fn start(config: impl FnOnce(SocketAddr) -> String) -> Envoy {
        let addresses = free_addresses(2);
        let [listener, admin] = addresses[..] else { unreachable!("two addresses were requested") };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("envoy.yaml");
        let page = format!("admin: {{address: {}}}\n", socket(admin));
        fs::write(&file, page + &config(listener)).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(foreign::path("LEASEWAY_TEST_ENVOY"))
            .arg("--config-path")
            .arg(&file)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Envoy { child, directory, admin, listener };
        eventually("Envoy is ready", || {
            assert!(envoy.child.try_wait().unwrap().is_none(), "Envoy exited during startup: {}", envoy.log());
            envoy.is_ready().then_some(())
        });
        envoy
    }

    /// Sends raw HTTP, because the response is chunked and `harness::http` does not support that.
    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return false };
        let asked = stream.write_all(b"GET /ready HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// An address in the syntax of Envoy's configuration.
pub(crate) fn socket(address: SocketAddr) -> String {
    format!("{{socket_address: {{address: {}, port_value: {}}}}}", address.ip(), address.port())
}

/// An entry of `static_resources.clusters` with one endpoint. gRPC needs `http2`.
pub(crate) fn cluster(name: &str, address: SocketAddr, http2: bool) -> String {
    cluster_of(name, &[address], http2)
}

/// A cluster that prefers its endpoints in this order and uses the first healthy one.
pub(crate) fn cluster_of(name: &str, addresses: &[SocketAddr], http2: bool) -> String {
    let protocol = if http2 { "http2_protocol_options: {}" } else { "http_protocol_options: {}" };
    let checks = "health_checks: [{timeout: 1s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 1, \
                  healthy_threshold: 1, grpc_health_check: {}}]\n    ";
    let checks = if addresses.len() > 1 { checks } else { "" };
    let endpoint = |(nth, address): (usize, &SocketAddr)| {
        format!("{{priority: {nth}, lb_endpoints: [{{endpoint: {{address: {}}}}}]}}", socket(*address))
    };
    let endpoints = addresses.iter().enumerate().map(endpoint).collect::<Vec<_>>().join(", ");
    format!(
        "  - name: {name}
    type: STATIC
    connect_timeout: 5s
    {checks}typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{{protocol}}}
    load_assignment:
      cluster_name: {name}
      endpoints: [{endpoints}]
"
    )
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let output = self.log();
        if std::thread::panicking() && !output.is_empty() {
            eprintln!("--- output of Envoy ---\n{output}--- end ---");
        }
    }
}
