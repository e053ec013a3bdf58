//! Shell completions and manual pages.

use std::{collections::BTreeSet, fs, process::Command};

use crate::harness::process::leaseway;

#[test]
fn bash_completes_commands_flags_and_values() {
    let script = leaseway(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{script:?}");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("leaseway.bash");
    fs::write(&file, script.stdout).unwrap();
    let completed = |words: &str| {
        let ask = "COMP_CWORD=$((${#COMP_WORDS[@]}-1)); \
                   _leaseway leaseway \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; echo \"${COMPREPLY[@]}\"";
        let script = format!("source '{}'\nCOMP_WORDS=({words})\n{ask}", file.display());
        let said = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("leaseway exp"), "explain");
    assert_eq!(completed("leaseway config roll"), "rollback");
    assert_eq!(completed("leaseway serve --log-f"), "--log-format");
    assert_eq!(completed("leaseway serve --log-format j"), "json");
}

#[test]
fn other_shells_have_completions_and_an_unknown_one_is_named() {
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let said = leaseway(&["completions", shell]);
        assert!(said.code == Some(0) && said.stdout.contains("rollback"), "{shell}: {said:?}");
    }
    let said = leaseway(&["completions", "csh"]);
    assert!(said.code == Some(2) && said.stderr.contains("possible values: bash"), "{said:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("share/man1");
    let said = leaseway(&["man", directory.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let pages: BTreeSet<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["leaseway.1", "leaseway-serve.1", "leaseway-config-rollback.1", "leaseway-man.1"] {
        assert!(pages.contains(page), "{page}: {pages:?}");
    }
    let page = fs::read_to_string(directory.join("leaseway-serve.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("LEASEWAY_LISTEN"), "{page}");
    let file = directory.join("leaseway.1");
    let said = leaseway(&["man", file.to_str().unwrap()]);
    assert!(said.code == Some(1) && said.stderr.contains("cannot prepare"), "{said:?}");
}
