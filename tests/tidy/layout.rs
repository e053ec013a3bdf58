//! Only some modules may use actix and openraft. Pure code uses no clock or I/O. Lints and dependencies need reasons.

use std::path::PathBuf;

use crate::files::{complain, files, root, short};

#[test]
fn only_actors_use_actix() {
    let actors: [PathBuf; 2] = [root().join("src/server/node"), root().join("src/server/node.rs")];
    let mut found = Vec::new();
    for (path, text) in files(&["rs"]) {
        if actors.iter().any(|actors| path.starts_with(actors)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            if ["actix::", "actix_rt::", "use actix"].iter().any(|name| code.contains(name)) && !code.contains('"') {
                found.push(format!("{}:{}", short(&path), number + 1));
            }
        }
    }
    complain("actix outside of src/server/node", &found);
}

#[test]
fn only_src_raft_uses_openraft() {
    let raft = root().join("src/raft");
    let named = files(&["rs"]).into_iter().filter(|(path, text)| {
        !path.starts_with(&raft)
            && text.lines().any(|line| line.split("//").next().unwrap().contains(concat!("openraft", "::")))
    });
    complain("openraft outside of src/raft", &named.map(|(path, _)| short(&path)).collect::<Vec<_>>());
}

/// Pure modules, whose code gets time and seeds as arguments.
const PURE: [&str; 6] =
    ["src/client/limiter", "src/client/session", "src/core", "src/uplink", "src/gateway/rlqs/quotas", "src/sim"];

/// Words that are forbidden in pure modules. Parsing addresses and seeding generators is allowed.
const IMPURE: [&str; 15] = [
    "Instant",
    "SystemTime",
    "std::fs",
    "std::io",
    "std::env",
    "std::thread",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "Mutex",
    "RwLock",
    "Condvar",
    "Rng::new()",
    "tokio::",
    "tracing::",
];

#[test]
fn pure_crates_read_no_clock_and_do_no_io() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs"]) {
        let name = short(&path);
        let is_pure =
            PURE.iter().filter_map(|folder| name.strip_prefix(folder)).any(|rest| rest.starts_with(['/', '.']));
        let exempt = ["tests", "limiter/waiting", "/benches/", "sim/runner.rs"];
        if is_pure && !exempt.iter().any(|part| name.contains(part)) {
            let code = text.lines().take_while(|line| line.trim() != "mod tests {").enumerate();
            let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
            found.extend(code.filter_map(|(number, line)| {
                let what = IMPURE.iter().find(|what| line.contains(**what))?;
                Some(format!("{name}:{}: {what}", number + 1))
            }));
        }
    }
    complain("clocks, I/O, locks or randomness in pure code", &found);
}

#[test]
fn lints_are_allowed_for_a_reason() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs"]) {
        let attributes = ["#[allow(", "#![allow(", "#[expect(", "#![expect("];
        for attribute in attributes.iter().flat_map(|start| text.match_indices(start)) {
            let rest = &text[attribute.0..];
            let end = rest.find(")]").map_or(rest.len(), |end| end + 2);
            let (whole, after) = (&rest[..end], rest[end..].lines().next().unwrap_or_default());
            let is_quoted = text[..attribute.0].ends_with('"');
            if !is_quoted && !whole.contains("reason =") && !after.contains("//") {
                found.push(format!("{}: {whole}", short(&path)));
            }
        }
    }
    complain("lints that are allowed without a reason", &found);
}

#[test]
fn dependencies_are_declared_once_and_with_a_reason() {
    let workspace = crate::files::read("Cargo.toml");
    let table = workspace.split_once("[workspace.dependencies]\n").unwrap().1.split_once("\n[").unwrap().0;
    let declared = table.lines().filter(|line| line.contains(" = ") && !line.starts_with('#'));
    let mut found: Vec<String> = Vec::new();
    let mut explained = "";
    for line in declared {
        // The first dependency of a family such as `tower-layer` and `tower-service` has the reason for all.
        let family = line.split(['-', '_', ' ']).next().unwrap();
        if line.contains(" # ") {
            explained = family;
        }
        if family != "leaseway" && family != explained {
            found.push(format!("without a reason: {line}"));
        }
    }
    for (path, text) in files(&["toml"]) {
        let mut is_dependency = false;
        for line in text.lines().filter(|_| path != root().join("Cargo.toml")) {
            if line.starts_with('[') {
                is_dependency = line.ends_with("dependencies]") && !line.contains("optional");
            } else if is_dependency && line.contains(" = ") && !line.contains("workspace = true") {
                found.push(format!("{}: {line}", short(&path)));
            }
        }
    }
    complain("dependencies", &found);
}
