//! The certificates of `leaseway up --tls`. They are created if they are missing, and replaced if they do not cover all
//! addresses or expire soon, because nothing outside of this machine depends on them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::authority::{Authority, Subject};
use super::files::{CA, Existing};
use super::names::SubjectName;
use super::show::EXPIRY_WARNING;
use super::{CA_DAYS, LEAF_DAYS, authority, files, show};
use crate::error::CliError;

const CA_NAME: &str = "leaseway up";
const PEERS: &str = "peer";
const CLIENT: &str = "client";

/// The files of a server or client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

/// A CA, a certificate that all peers of this machine share, and one for its clients.
pub(crate) struct LocalSet {
    directory: PathBuf,
}

impl LocalSet {
    /// The directory need not exist.
    pub(crate) fn in_directory(directory: PathBuf) -> LocalSet {
        LocalSet { directory }
    }

    pub(crate) fn peers(&self) -> Member {
        self.member(PEERS)
    }

    pub(crate) fn client(&self) -> Member {
        self.member(CLIENT)
    }

    fn member(&self, name: &str) -> Member {
        let directory = &self.directory;
        Member {
            certificate: files::certificate(directory, name),
            key: files::key(directory, name),
            ca: files::certificate(directory, CA),
        }
    }

    /// Creates the certificates that are missing, do not cover all addresses, or expire soon.
    pub(crate) fn make(&self, addresses: &BTreeSet<IpAddr>) -> Result<(), CliError> {
        let now = SystemTime::now();
        if !files::certificate(&self.directory, CA).exists() {
            let ca = authority::generate(CA_NAME, now, CA_DAYS)?;
            files::write(&self.directory, CA, &ca, Existing::Kept)?;
        }
        let names = std::iter::once(SubjectName::Dns("localhost".to_owned()));
        let hosts = names.chain(addresses.iter().copied().map(SubjectName::Address)).collect();
        for subject in
            [Subject { name: PEERS.to_owned(), names: hosts }, Subject { name: CLIENT.to_owned(), names: Vec::new() }]
        {
            if !self.fits(&subject, now) {
                let pair = Authority::read(&self.directory)?.issue(&subject, now, LEAF_DAYS)?;
                files::write(&self.directory, &subject.name, &pair, Existing::Replaced)?;
            }
        }
        Ok(())
    }

    /// The equivalent commands, for `up --print`.
    pub(crate) fn commands(&self, addresses: &BTreeSet<IpAddr>) -> [Vec<String>; 3] {
        let directory = self.directory.display().to_string();
        let hosts: Vec<_> =
            std::iter::once("localhost".to_owned()).chain(addresses.iter().map(ToString::to_string)).collect();
        let words = |words: &[&str]| {
            let words = [&["certs"], words, &["--dir", &directory]].concat();
            words.into_iter().map(str::to_owned).collect()
        };
        [
            words(&["init", "--name", CA_NAME]),
            words(&["issue", PEERS, "--host", &hosts.join(",")]),
            words(&["issue", CLIENT]),
        ]
    }

    fn fits(&self, subject: &Subject, now: SystemTime) -> bool {
        let Member { certificate, key, .. } = self.member(&subject.name);
        let there = show::read(&certificate).ok().and_then(|mut shown| shown.pop()).filter(|_| key.exists());
        there.is_some_and(|there| {
            there.is_valid_until(now + EXPIRY_WARNING) && subject.names.iter().all(|name| there.has(name))
        })
    }
}

impl Member {
    /// The flags of a command.
    pub(crate) fn flags(&self) -> [String; 6] {
        let text = |path: &Path| path.display().to_string();
        [
            "--tls-cert".to_owned(),
            text(&self.certificate),
            "--tls-key".to_owned(),
            text(&self.key),
            "--tls-ca".to_owned(),
            text(&self.ca),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn certificates_are_made_once_and_replaced_when_they_do_not_fit() {
        let temporary = tempfile::tempdir().expect("a directory");
        let set = LocalSet::in_directory(temporary.path().join("certs"));
        let read =
            || [set.peers().certificate, set.client().certificate, set.client().ca].map(|path| fs::read(path).ok());
        set.make(&addresses(&["127.0.0.1"])).expect("made");
        let first = read();
        assert!(first.iter().all(Option::is_some));
        set.make(&addresses(&["127.0.0.1"])).expect("it is there");
        assert_eq!(read(), first);
        set.make(&addresses(&["127.0.0.1", "127.0.0.2"])).expect("made again");
        let [peers, client, ca] = read();
        assert!(peers != first[0] && client == first[1] && ca == first[2], "it is for one more address");
        fs::remove_file(set.client().key).expect("deleted");
        set.make(&addresses(&["127.0.0.2"])).expect("made again");
        assert!(read()[0] == peers && read()[1] != client);
    }
}
