//! `leaseway certs`: the files it writes, its output, and what it refuses.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;

use crate::harness::process::{Said, leaseway};

fn certs(directory: &Path, words: &[&str]) -> Said {
    leaseway(&[&["certs"], words, &["--dir", directory.to_str().unwrap()]].concat())
}

fn done(said: Said) -> String {
    assert_eq!(said.code, Some(0), "{said:?}");
    said.stdout
}

#[test]
fn three_commands_make_a_set_and_say_which_file_goes_where() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("set");
    let init = done(certs(&directory, &["init"]));
    let [ca, ca_key] = ["ca.pem", "ca.key"].map(|file| directory.join(file).display().to_string());
    assert!(init.contains(&ca) && init.contains(&ca_key) && init.contains("--tls-ca"), "{init}");
    assert!(init.contains("leaseway certs issue alice --dir"), "{init}");

    let node = done(certs(&directory, &["issue", "node", "--host", "A.internal,10.0.0.1"]));
    assert!(node.contains("the certificate of `a.internal`, a server"), "{node}");
    assert!(node.contains(&format!("leaseway serve --tls-cert {}", directory.join("node.pem").display())), "{node}");
    let alice = done(certs(&directory, &["issue", "alice"]));
    assert!(alice.contains("the certificate of `alice`, a client") && alice.contains("leaseway get alice"), "{alice}");
    let web = done(certs(&directory, &["issue", "web", "--uri", "spiffe://acme/web/1"]));
    assert!(web.contains("the certificate of `spiffe://acme/web/1`, a client"), "{web}");

    for name in ["ca", "node", "alice", "web"] {
        let mode = |kind: &str| fs::metadata(directory.join(format!("{name}.{kind}"))).unwrap().permissions().mode();
        assert_eq!((mode("key") & 0o777, mode("pem") & 0o077), (0o600, 0o044), "{name}");
    }
    let shown = done(leaseway(&["certs", "show", directory.to_str().unwrap()]));
    for words in
        ["node.pem: node", "names   a.internal, 10.0.0.1", "issuer  Leaseway CA (itself: a CA)", "valid   from "]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("PRIVATE"), "{shown}");
}

#[test]
fn what_is_there_is_kept_unless_it_is_told_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let read = |file: &str| fs::read(directory.path().join(file)).unwrap();
    done(certs(directory.path(), &["init"]));
    done(certs(directory.path(), &["issue", "a"]));
    let before = [read("ca.key"), read("a.pem")];
    for words in [&["init"][..], &["issue", "a"]] {
        let said = certs(directory.path(), words);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("is there already") && said.stderr.contains("--force"), "{said:?}");
    }
    assert_eq!([read("ca.key"), read("a.pem")], before);
    done(certs(directory.path(), &["issue", "a", "--force"]));
    assert_ne!(read("a.pem"), before[1]);
}

#[test]
fn mistakes_are_told_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], code: i32, says: &str| {
        let said = certs(directory.path(), words);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(says), "{says}: {said:?}");
    };
    refused(&["issue", "a"], 1, "`leaseway certs init` makes one");
    refused(&["issue", "a", "--host", "a:5100"], 2, "leave scheme and port away");
    refused(&["issue", "a/b"], 2, "it names files");
    refused(&["issue", "a", "--days", "0"], 2, "--days");
    done(certs(directory.path(), &["init", "--days", "5"]));
    let cut = certs(directory.path(), &["issue", "a"]);
    assert!(cut.code == Some(0) && cut.stderr.contains("it ends with its CA"), "{cut:?}");
    let own = directory.path().join("ca.key");
    fs::remove_file(own).unwrap();
    refused(&["issue", "b"], 1, "only where the CA was made");
    fs::copy(directory.path().join("a.pem"), directory.path().join("ca.pem")).unwrap();
    fs::copy(directory.path().join("a.key"), directory.path().join("ca.key")).unwrap();
    refused(&["issue", "b"], 1, "it was not made by `leaseway certs init`");
}

#[test]
fn what_ends_soon_is_warned_of_and_what_is_no_certificate_is_said() {
    let directory = tempfile::tempdir().unwrap();
    done(certs(directory.path(), &["init", "--name", "ours"]));
    done(certs(directory.path(), &["issue", "a", "--days", "20"]));
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let said = leaseway(&["certs", "show", &file("a.pem"), &file("ca.pem"), "--json"]);
    assert!(said.stderr.contains("a.pem ends in ") && !said.stderr.contains("ca.pem"), "{said:?}");
    let shown: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&shown[0]["subject"], &shown[0]["issuer"]), (&"a".into(), &"ours".into()));
    for (path, says) in [(file("a.key"), "no certificate"), (file("none.pem"), "none.pem")] {
        let said = leaseway(&["certs", "show", &path]);
        assert!(said.code == Some(78) && said.stderr.contains(says), "{said:?}");
    }
}
