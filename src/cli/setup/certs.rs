//! `leaseway certs`: a private CA and its certificates, for networks without a PKI.
//!
//! A set is a directory with `ca.pem`, `ca.key`, and `NAME.pem` and `NAME.key` for each name. Servers and clients take
//! any PEM files and do not depend on it.

mod authority;
mod files;
mod names;
mod set;
mod show;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand, builder::RangedU64ValueParser};
use serde_json::json;

use self::authority::{Authority, Subject};
use self::files::Existing;
use self::names::SubjectName;
pub(crate) use self::set::{LocalSet, Member};
use crate::Outcome;
use crate::output::{Output, note, print, print_json, utc};

/// The default validity of a CA. It is long, because the file of the CA is distributed to many places.
const CA_DAYS: u64 = 3650;
/// The default validity of a certificate. Servers load a renewed one without a restart.
const LEAF_DAYS: u64 = 365;
/// The maximum validity: a hundred years.
const MAX_DAYS: u64 = 36_500;

#[derive(Subcommand)]
pub(crate) enum CertsCommand {
    /// Create a private CA. Distribute its certificate, and keep its key secret
    Init(Init),
    /// Issue a certificate and key. The holder is a server, client or operator
    Issue(Issue),
    /// Show names, issuer and expiry. Warns of certificates that expire soon
    Show(show::ShowCertificates),
}

impl CertsCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            CertsCommand::Init(init) => init.run(),
            CertsCommand::Issue(issue) => issue.run(),
            CertsCommand::Show(show) => show.run(),
        }
    }
}

pub(crate) const EXAMPLES: &str = "\
Set up mutual TLS:

  leaseway certs init                              on the machine that keeps certs/ca.key
  leaseway certs issue node --host a.internal,b.internal,localhost,127.0.0.1
  leaseway certs issue alice

  leaseway serve --tls-cert certs/node.pem --tls-key certs/node.key --tls-ca certs/ca.pem
  leaseway get alice mysql 40 --tls-cert certs/alice.pem --tls-key certs/alice.key --tls-ca certs/ca.pem

Servers and clients each need their own .pem and .key files, and ca.pem. Keep ca.key on the machine that created it.
To renew a certificate, repeat the command with --force and replace the two files. Running servers and clients reload
them within two seconds.";

#[derive(Args)]
pub(crate) struct Init {
    #[command(flatten)]
    certs_dir: CertsDir,
    /// Name of the CA, unique in its network
    #[arg(long, default_value = "Leaseway CA", value_parser = names::common_name)]
    name: String,
    /// Validity in days
    #[arg(long, default_value_t = CA_DAYS, value_parser = days())]
    days: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Issue {
    /// Name of the holder, also used for the file names
    #[arg(value_parser = names::file_name)]
    name: String,
    /// DNS names and IP addresses of a server, without ports. Without --host, the certificate is for a client
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', value_parser = SubjectName::host)]
    host: Vec<SubjectName>,
    /// SPIFFE ids, such as spiffe://acme/web/1
    #[arg(long, value_name = "URI,…", value_delimiter = ',', value_parser = SubjectName::uri)]
    uri: Vec<SubjectName>,
    /// Validity in days; it never exceeds that of the CA
    #[arg(long, default_value_t = LEAF_DAYS, value_parser = days())]
    days: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    certs_dir: CertsDir,
}

/// Directory for certificates and keys
#[derive(Args)]
struct CertsDir {
    /// Directory for certificates and keys
    #[arg(long, default_value = "certs", value_name = "DIRECTORY")]
    dir: PathBuf,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

impl CertsDir {
    fn existing(&self) -> Existing {
        if self.force { Existing::Replaced } else { Existing::Kept }
    }
}

fn days() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=MAX_DAYS)
}

impl Init {
    fn run(self) -> Outcome {
        let CertsDir { dir, .. } = &self.certs_dir;
        let ca = authority::generate(&self.name, SystemTime::now(), self.days)?;
        let ends = ca.ends;
        let [certificate, key] = files::write(dir, files::CA, &ca, self.certs_dir.existing())?;
        if self.output.is_json() {
            return print_json(json!({
                "name": self.name, "certificate": text(&certificate), "key": text(&key), "not_after": utc(ends),
            }));
        }
        print(format_args!(
            "{certificate}  CA certificate: give it to every server and client (--tls-ca); expires {end}\n\
             {key}  CA key: signs certificates; keep it secret",
            certificate = certificate.display(),
            key = key.display(),
            end = utc(ends),
        ))?;
        let dir = in_directory(dir);
        print(format_args!(
            "\nNext:\n  \
             leaseway certs issue node --host localhost,127.0.0.1{dir}  for servers: list all their host names and \
             addresses\n  \
             leaseway certs issue alice{dir}  for a client with the identity alice"
        ))
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The `--dir` flag, unless the directory is the default.
fn in_directory(directory: &Path) -> String {
    if directory == Path::new("certs") { String::new() } else { format!(" --dir {}", directory.display()) }
}

impl Issue {
    fn run(self) -> Outcome {
        let CertsDir { dir, .. } = &self.certs_dir;
        let subject = Subject { name: self.name, names: [self.uri, self.host].concat() };
        let now = SystemTime::now();
        let pair = Authority::read(dir)?.issue(&subject, now, self.days)?;
        let [certificate, key] = files::write(dir, &subject.name, &pair, self.certs_dir.existing())?;
        let [certificate, key, ca] = [certificate, key, files::certificate(dir, files::CA)].map(|path| text(&path));
        if self.output.is_json() {
            return print_json(json!({
                "identity": subject.identity(), "serves": subject.serves(), "certificate": certificate,
                "key": key, "ca": ca, "not_after": utc(pair.ends),
            }));
        }
        print(format_args!(
            "{certificate}  certificate of `{identity}`, {whom}; expires {end}\n\
             {key}  its key: keep it secret",
            identity = subject.identity(),
            whom = if subject.serves() { "a server" } else { "a client" },
            end = utc(pair.ends),
        ))?;
        if pair.ends < authority::after(now, self.days) {
            note(format_args!("the certificate expires before the {} days are over, because its CA does", self.days));
        }
        let command = if subject.serves() { "serve".to_owned() } else { format!("get {} mysql 40", subject.name) };
        print(format_args!(
            "\nIts holder needs both files and {ca}:\n  \
             leaseway {command} --tls-cert {certificate} --tls-key {key} --tls-ca {ca}"
        ))
    }
}
