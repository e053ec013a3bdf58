//! Envoy Gateway without Kubernetes: the unchanged program of its module, which reads resources from files, serves
//! configurations over xDS, and runs a real Envoy. Needs a [machine of its own](super::machine), because its ports are
//! fixed.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{binary, foreign, http, machine::Redirect, process::Process, tls::text, wait::eventually};

/// The names under which Envoy Gateway and the rate limit service reach each other in Kubernetes.
pub(crate) const HOSTS: &str =
    "127.0.0.1 envoy-gateway\n127.0.0.9 envoy-ratelimit.envoy-gateway-system.svc.cluster.local";

/// Envoy Gateway has the port of the rate limit service for a probe of its own.
pub(crate) const RATE_LIMIT: Redirect = ("127.0.0.9", 8081, 8082);

/// Variables of the rate limit service that are not those of its deployment: ports that are free, and that there is no
/// policy.
const OWN: [(&str, &str); 3] =
    [("GRPC_PORT", "8082"), ("PROMETHEUS_ADDR", "127.0.0.1:19002"), ("LEASEWAY_INSECURE", "true")];

/// Has Envoy Gateway run the Envoy that [`install_envoy`] has put there.
const PROXY: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: default}
spec: {provider: {type: Host, host: {envoyVersion: 1.40.0}}}
";

/// The address of the listener in Envoy Gateway's example for this mode.
pub(crate) const LISTENER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8888));

pub(crate) struct EnvoyGateway {
    process: Process,
    directory: TempDir,
}

impl EnvoyGateway {
    /// Makes certificates at /certs, as Envoy Gateway mounts them in its pods, and starts with these resources.
    pub(crate) fn start(resources: &str) -> EnvoyGateway {
        let directory = tempfile::tempdir().unwrap();
        let place = text(directory.path());
        let program = built().join("envoy-gateway");
        let made = ["certgen", "--local", "--config-home", &format!("{place}/config")];
        let made = Process::start_program(&program, &made, &[]).finish();
        assert_eq!(made.code, Some(0), "{made:?}");
        symlink(directory.path().join("config/certs/envoy"), "/certs").unwrap();
        install_envoy(&directory.path().join("data"));
        fs::create_dir(directory.path().join("resources")).unwrap();
        let config = directory.path().join("envoy-gateway.yaml");
        fs::write(&config, configuration(&place)).unwrap();
        write(directory.path(), resources);
        let process = Process::start_program(&program, &["server", "--config-path", &text(&config)], &[]);
        EnvoyGateway { process, directory }
    }

    /// Changes the resources.
    pub(crate) fn apply(&self, resources: &str) {
        write(self.directory.path(), resources);
    }

    pub(crate) fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }
}

impl Drop for EnvoyGateway {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        eventually("Envoy Gateway ends", || self.process.ended());
        if std::thread::panicking() {
            eprintln!("--- output of Envoy Gateway ---\n{}--- end ---", self.log());
        }
    }
}

/// Puts Envoy where Envoy Gateway would download it.
fn install_envoy(data: &Path) {
    let place = data.join("envoy-versions/1.40.0/bin");
    fs::create_dir_all(&place).unwrap();
    symlink(foreign::path("LEASEWAY_TEST_ENVOY"), place.join("envoy")).unwrap();
}

/// `aigw run`: Envoy AI Gateway without Kubernetes, with an Envoy Gateway in its process.
pub(crate) struct AiGateway {
    process: Process,
    _directory: TempDir,
}

impl AiGateway {
    /// Starts with these resources, and these QuotaPolicies.
    pub(crate) fn start(resources: &str, quotas: &str) -> AiGateway {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| text(&directory.path().join(name));
        let home = Path::new("/root");
        install_envoy(&home.join(".local/share/aigw"));
        fs::write(file("config.yaml"), format!("{resources}\n---\n{PROXY}")).unwrap();
        fs::write(file("quotas.yaml"), quotas).unwrap();
        let variables = [("LEASEWAY_QUOTAS", &*file("quotas.yaml"))];
        // A socket in /tmp, which all tests share, has this name.
        let run = text(Path::new(directory.path().file_name().unwrap()));
        let arguments = ["run", &file("config.yaml"), "--run-id", &run, "--debug"];
        let process = Process::start_program(&built().join("aigw"), &arguments, &variables);
        let certificates = home.join(".config/envoy-gateway/certs/envoy");
        symlink(&certificates, "/certs").unwrap();
        let resources = home.join(format!(".local/state/aigw/runs/{run}/envoy-ai-gateway-resources"));
        eventually("the certificates and the resources are there", || {
            assert!(process.ended().is_none(), "aigw exited during startup: {}", process.stderr());
            (resources.join("config.yaml").exists() && certificates.join("tls.key").exists()).then_some(())
        });
        fs::write(resources.join("secret.yaml"), secret()).unwrap();
        AiGateway { process, _directory: directory }
    }
}

impl Drop for AiGateway {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        eventually("AI Gateway ends", || self.process.ended());
    }
}

/// What `tests/go/gateways` builds.
fn built() -> PathBuf {
    foreign::path("LEASEWAY_TEST_CONTROL_PLANES")
}

/// A file of a module: `gateway/…` or `ai-gateway/…`.
pub(crate) fn source(path: &str) -> String {
    let path = built().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn configuration(place: &str) -> String {
    format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {{controllerName: gateway.envoyproxy.io/gatewayclass-controller}}
provider:
  type: Custom
  custom:
    resource: {{type: File, file: {{paths: [{place}/resources]}}}}
    infrastructure:
      type: Host
      host: {{configHome: {place}/config, dataHome: {place}/data, stateHome: {place}/state, runtimeDir: {place}/run}}
extensionApis: {{enableBackend: true, enableLua: true}}
rateLimit:
  backend: {{type: Redis, redis: {{url: \"none:6379\"}}}}
  timeout: 20s
  failClosed: true
"
    )
}

/// Writes resources as a whole, so that no half of them is read.
fn write(directory: &Path, resources: &str) {
    let other = directory.join("other");
    fs::write(&other, format!("{resources}\n---\n{}---\n{PROXY}", secret())).unwrap();
    fs::rename(other, directory.join("resources/all.yaml")).unwrap();
}

/// The secret that Envoy Gateway's installation makes.
fn secret() -> String {
    let data = ["tls.crt", "tls.key", "ca.crt"].map(|file| {
        let content = fs::read(Path::new("/certs").join(file)).unwrap();
        format!("{file}: {}", BASE64_STANDARD.encode(content))
    });
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: envoy, namespace: envoy-gateway-system}}
type: kubernetes.io/tls
data: {{{}}}
",
        data.join(", ")
    )
}

/// A container in place of envoyproxy/ratelimit, with the command and the variables that a deployment has, and `more`
/// variables.
pub(crate) struct RateLimit {
    process: Process,
    _directory: TempDir,
}

impl RateLimit {
    pub(crate) fn start(deployment: &str, more: &[(&str, &str)]) -> RateLimit {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("ratelimit");
        symlink(binary::path(), &program).unwrap();
        let variables: Vec<_> = variables(deployment).chain(OWN).chain(more.iter().copied()).collect();
        let process = Process::start_program(&program, &[], &variables);
        RateLimit { process, _directory: directory }
    }

    /// The probe of the deployment. `None` before the gateway listens.
    pub(crate) fn probe() -> Option<http::Response> {
        page(8080, "/healthcheck")
    }

    /// A page of the port for metrics. Empty before the gateway listens.
    pub(crate) fn page(path: &str) -> String {
        page(19002, path).map_or(String::new(), |page| page.body)
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }
}

fn page(port: u16, path: &str) -> Option<http::Response> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect(address).ok().map(|_| http::get(address, path))
}

/// The variables of a deployment in YAML, each a `- name:` followed by its `value:`.
fn variables(deployment: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = deployment.lines().map(str::trim);
    lines.clone().zip(lines.skip(1)).filter_map(|(name, value)| {
        Some((name.strip_prefix("- name: ")?, value.strip_prefix("value: ")?.trim_matches('"')))
    })
}
