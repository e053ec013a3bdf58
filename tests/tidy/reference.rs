//! Compares docs/reference with the binary and the code.

use std::{collections::BTreeSet, path::Path};

use crate::{
    command_line::{Flag, commands, flags, leaseway},
    files::{assert_same, complain, files_below, read, root},
};

/// The cells of each table row with the heading above the table. Skips the heads of tables.
fn rows(page: &str) -> Vec<(String, Vec<String>)> {
    let (mut heading, mut found, mut is_head) = (String::new(), Vec::new(), true);
    for line in page.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        }
        let cells = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        match cells {
            Some(cells) if !is_head => {
                let cells = cells.replace("\\|", "\u{0}");
                let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect();
                let is_line = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|char| char == '-'));
                if !is_line {
                    found.push((heading.clone(), cells));
                }
            }
            Some(_) => is_head = false,
            None => is_head = true,
        }
    }
    found
}

/// The text in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// The commands that a heading or a cell names. `peers *` stands for all commands below `peers`.
fn named_commands(text: &str, all: &[String]) -> Vec<String> {
    let is_named = |pattern: &String, command: &String| match pattern.strip_suffix('*') {
        Some(prefix) => command.starts_with(prefix),
        None => command == pattern,
    };
    let patterns = quoted(text);
    let mut found: Vec<String> = patterns.iter().filter(|pattern| !pattern.ends_with('*')).cloned().collect();
    found.extend(all.iter().filter(|command| patterns.iter().any(|pattern| is_named(pattern, command))).cloned());
    found
}

/// `LEASEWAY_MAX_ID_BYTES` for `--max-id-bytes`.
fn variable_of(flag: &str) -> String {
    format!("LEASEWAY_{}", flag.trim_start_matches("--").to_uppercase().replace('-', "_"))
}

/// The flags of docs/reference/flags.md. Those with a variable are below headings that name commands, those without one
/// in a table that names the commands in its first column.
fn documented_flags(all: &[String]) -> Vec<Flag> {
    let some = |cell: &str| Some(plain(cell)).filter(|text| !text.is_empty());
    let (mut found, mut of_groups) = (Vec::new(), Vec::new());
    for (heading, cells) in rows(&read("docs/reference/flags.md")) {
        let (commands, flag, default, variable) = match &cells[..] {
            [flag, default, _] => {
                let mut commands = named_commands(&heading, all);
                if heading.starts_with("Operator commands: ") || heading.starts_with("Client commands: ") {
                    of_groups.extend(commands.clone());
                } else if heading == "Operator commands and client commands" {
                    commands.clone_from(&of_groups);
                }
                (commands, flag, default, Some(variable_of(&plain(flag))))
            }
            [commands, flag, default, _] => (named_commands(commands, all), flag, default, None),
            _ => continue,
        };
        for command in commands {
            let variable = variable.clone();
            found.push(Flag { command, name: plain(flag), variable, default: some(default) });
        }
    }
    found
}

/// The flags of `serve` that docs/reference/limits.md has; another test compares their defaults.
fn limit_flags() -> BTreeSet<String> {
    let rows = rows(&read("docs/reference/limits.md")).into_iter();
    rows.filter_map(|(_, cells)| cells.get(1).filter(|cell| cell.starts_with("`--")).map(|cell| plain(cell))).collect()
}

#[test]
fn flags_are_documented_with_variable_and_default() {
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    let limits = limit_flags();
    let is_elsewhere = |flag: &Flag| {
        flag.name == "--output" || flag.name == "--json" || flag.command == "serve" && limits.contains(&flag.name)
    };
    let flags = commands.iter().flat_map(|(command, help)| flags(command, help));
    let told: BTreeSet<String> = flags.filter(|flag| !is_elsewhere(flag)).map(|flag| flag.to_string()).collect();
    let names: Vec<String> = commands.iter().map(|(command, _)| command.clone()).collect();
    let documented = documented_flags(&names);
    let documented: BTreeSet<String> =
        documented.iter().filter(|flag| !is_elsewhere(flag)).map(Flag::to_string).collect();
    assert_same(("leaseway --help", &told), ("docs/reference/flags.md", &documented));
}

#[test]
fn commands_are_documented() {
    let told: BTreeSet<String> = commands().into_iter().map(|(command, _)| command).collect();
    let page = read("docs/reference/flags.md");
    let listed = rows(&page).into_iter().filter(|(heading, _)| heading == "Commands");
    let words = |cell: &str| {
        let is_of_word = |char: char| char.is_ascii_lowercase() || char == '-';
        let is_word = |word: &&str| !word.starts_with('-') && word.chars().all(is_of_word);
        plain(cell).split_whitespace().take_while(is_word).collect::<Vec<_>>().join(" ")
    };
    let documented: BTreeSet<String> = listed.map(|(_, cells)| words(&cells[0])).collect();
    assert_same(("leaseway --help", &told), ("the commands of docs/reference/flags.md", &documented));
}

/// tests/scenarios/commands/json.rs checks the fields of each.
#[test]
fn json_output_is_documented() {
    let has_json = |(command, help): &(String, String)| flags(command, help).iter().any(|flag| flag.name == "--output");
    let told: BTreeSet<String> = commands().into_iter().filter(has_json).map(|(command, _)| command).collect();
    let page = read("docs/reference/json.md");
    let documented = page.lines().filter_map(|line| line.strip_prefix("## ")).flat_map(quoted);
    assert_same(("leaseway --help", &told), ("docs/reference/json.md", &documented.collect::<BTreeSet<_>>()));
}

/// Compares the variables of flags in the help, and those in the code, with the page.
#[test]
fn variables_are_documented() {
    let code = files_below(&root().join("src"), &["rs"]);
    let is_test = |path: &Path| path.strip_prefix(root()).is_ok_and(|path| path.to_string_lossy().contains("tests"));
    let is_of_name = |char: char| char.is_ascii_uppercase() || char == '_';
    let in_code = code.iter().filter(|(path, _)| !is_test(path)).flat_map(|(_, text)| {
        let quoted = text.split('"').filter(|text| text.starts_with("LEASEWAY_") && text.chars().all(is_of_name));
        quoted.filter(|name| *name != "LEASEWAY_").map(str::to_owned).collect::<Vec<_>>()
    });
    let commands = commands();
    let of_flags = commands.iter().flat_map(|(command, help)| flags(command, help)).filter_map(|flag| flag.variable);
    let in_code: BTreeSet<String> = in_code.chain(of_flags).collect();
    let names: Vec<String> = commands.iter().map(|(command, _)| command.clone()).collect();
    let page = read("docs/reference/flags.md");
    let quoted = quoted(&page).into_iter().filter(|name| name.starts_with("LEASEWAY_") && name.chars().all(is_of_name));
    let of_rows = documented_flags(&names).into_iter().filter_map(|flag| flag.variable);
    let of_limits = limit_flags().into_iter().map(|flag| variable_of(&flag));
    let in_page: BTreeSet<String> = quoted.chain(of_rows).chain(of_limits).collect();
    assert_same(("the code", &in_code), ("docs/reference/flags.md", &in_page));
}

/// Converts numbers as people write them, such as `10,000` and `4 MiB`.
fn number(text: &str) -> String {
    let text = plain(text).replace(',', "");
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    match (number.parse::<u64>(), unit.split_whitespace().next()) {
        (Ok(number), Some("MiB")) => (number << 20).to_string(),
        (Ok(number), _) => number.to_string(),
        (Err(_), _) => text,
    }
}

#[test]
fn limits_with_flags_are_documented_with_their_defaults() {
    let help = leaseway(&["serve", "--help-all"]);
    let limits = help.split_once("Limits (").expect("the heading of the limits").1;
    let limits = limits.lines().skip(1).take_while(|line| line.is_empty() || line.starts_with(' '));
    let limits = limits.collect::<Vec<_>>().join("\n");
    let told = flags("serve", &limits).into_iter();
    let told: BTreeSet<String> =
        told.map(|flag| format!("{} {}", flag.name, flag.default.unwrap_or_default())).collect();
    let rows = rows(&read("docs/reference/limits.md")).into_iter();
    let rows = rows.filter(|(_, cells)| cells.get(1).is_some_and(|cell| cell.starts_with("`--")));
    let documented: BTreeSet<String> = rows
        .map(|(_, cells)| {
            let default = cells[2].split([';', ':']).next().unwrap();
            let default = default.split_once(", ").map_or(default, |(number, _)| number);
            format!("{} {}", plain(&cells[1]), number(default))
        })
        .collect();
    assert_same(("leaseway serve --help-all", &told), ("docs/reference/limits.md", &documented));
}

/// Limits without a flag: name and value of the constant, and text on the page.
const FIXED: [(&str, &str, &str); 43] = [
    ("MAX_WEIGHT", "1_000", "100 rules for clients of a template, with a weight of 1 to 1,000;"),
    ("MAX_GROUPS", "10_000", "10,000 groups of a resource, at all levels"),
    ("MAX_GROUPS_OF_CHILD", "1_000", "1,000 groups of a resource at a child node"),
    ("MAX_GROUP_SLICES", "4_000", "4,000 slices of similar wants in a report to a parent"),
    ("MAX_GROUP_SERIES", "1000", "1,000 groups with series in `/metrics`"),
    ("MAX_REPORTED_GROUPS", "100", "100 groups in a report of a resource"),
    ("MAX_OVERRIDES", "100", "100 overrides in force"),
    ("MAX_OVERRIDE_MS", "32 * 86_400_000", "of 1 s to 32 days"),
    ("MAX_WHY_BYTES", "500", "a reason of 500 bytes"),
    ("MAX_RULES", "1000", "1,000 rules of access"),
    ("MAX_PATTERNS", "100", "lists of 100 patterns"),
    ("MAX_TOKENS", "100_000", "100,000 tokens in `--tokens`"),
    ("AUDIT_QUEUE", "1024", "The audit log queues up to 1,024 lines"),
    ("DENIALS_PER_SECOND", "20", "up to 20 denials and early requests"),
    ("MAX_STREAMS", "1024", "1,024 requests under way on one connection"),
    ("MAX_REFUSED", "20", "20 recent invalid tokens of one connection (the count falls by one each second)"),
    ("MAX_REFUSED", "200", "200 invalid tokens of one address within a second"),
    ("MAX_PENDING_HANDSHAKES", "1024", "1,024 connections before the end of their TLS handshake"),
    ("MAX_SUBCLIENTS", "1_000_000_000", "1 to 1,000,000,000"),
    ("PAGE_ROWS", "1000", "1,000 rows of a status page"),
    ("REACHABLE", "100_000", "100,000 holders can be reached"),
    ("MAX_PAGE_ROWS", "1000", "1,000 rows of a status page"),
    ("MAX_CONFIGURATIONS", "32", "32 versions of the configuration"),
    ("MAX_BYTES", "4 << 20", "- 4 MiB, 10,000 templates,"),
    ("MAX_TEMPLATES", "10_000", "10,000 templates"),
    ("MAX_PARAMETERS", "100", "100 parameters each"),
    ("MAX_DEPTH", "32", "32 levels"),
    ("MAX_NODES", "500_000", "500,000 values"),
    ("MAX_KEYS", "100", "100 keys in a map"),
    ("MAX_KEY", "200", "200 bytes of a key"),
    ("MAX_TEXT", "4096", "4,096 bytes"),
    ("MAX_SECONDS", "31 * 24 * 3600", "31 days of a duration"),
    ("MAX_SHOWN", "50", "the first 50 mistakes"),
    ("MAX_POOL_ENTRIES", "200_000", "200,000 balances and costs of all pools"),
    ("MAX_ROWS", "200_000", "200,000 rows of [usage]"),
    ("MAX_READY", "10_000", "10,000 of a resource that wait to be stored"),
    ("MAX_ASSIGNMENTS", "100_000", "100,000 assignments of a pool"),
    ("MAX_MARKS", "10_000", "10,000 waiting marks of `pool alarm`"),
    ("MAX_SUBSCRIBERS", "256", "256 event streams of pools"),
    ("QUEUE", "1024", "1,024 waiting events"),
    ("MAX_METADATA", "100", "100 values in the `metadata` of one"),
    ("MAX_REQUEST_LIMITS", "256", "256 different limits that requests bring with them"),
    ("MAX_BY_VALUE", "10_000", "10,000 names of decisions in metrics"),
];

#[test]
fn fixed_limits_are_documented() {
    let page = read("docs/reference/limits.md");
    let code = files_below(&root().join("src"), &["rs"]);
    let constants: BTreeSet<(String, String)> = code
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| {
            let (name, value) = line.trim().strip_suffix(';')?.split_once("const ")?.1.split_once(" = ")?;
            Some((name.split(':').next()?.to_owned(), value.to_owned()))
        })
        .collect();
    let mut wrong = Vec::new();
    for (name, value, says) in FIXED {
        if !constants.contains(&(name.to_owned(), value.to_owned())) {
            wrong.push(format!("no constant {name} = {value} in src; the page says: {says}"));
        }
        if !page.contains(says) {
            wrong.push(format!("{name}: docs/reference/limits.md does not say: {says}"));
        }
    }
    complain("limits that differ from docs/reference/limits.md", &wrong);
}

/// The known words, which errors about unknown ones list.
fn known_in_configurations() -> BTreeSet<String> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let text = "\
        nothing: 1\n\
        resources:\n\
        - identifier_glob: \"a\"\n  capacity: 1\n  nothing: 1\n\
        \x20 algorithm: {kind: NOTHING, nothing: 1}\n  clients: [{nothing: 1}]\n\
        \x20 groups: {nothing: 1, rules: [{nothing: 1}]}\n\
        - identifier_glob: \"b\"\n  capacity: 1\n  algorithm: {kind: PRIORITY_POOL, parameters: {nothing: 1}}\n\
        - identifier_glob: \"c\"\n  capacity: 1\n  algorithm: {kind: BUDGET, parameters: {nothing: 1}}\n\
        access:\n\
        - {nothing: 1}\n\
        - {who: a, may: nothing}\n";
    std::fs::write(file.path(), text).unwrap();
    let complaints = leaseway(&["config", "check", file.path().to_str().unwrap()]);
    let lists = complaints.split("known: ").skip(1).map(|list| list.lines().next().unwrap());
    lists.flat_map(|list| list.split(", ")).map(str::to_owned).collect()
}

#[test]
fn keys_kinds_and_parameters_of_configurations_are_documented() {
    let known = known_in_configurations();
    assert!(known.len() > 40, "{known:?}");
    let rows = rows(&read("docs/reference/configuration.md"));
    let documented: BTreeSet<String> = rows.iter().flat_map(|(_, cells)| quoted(&cells[0])).collect();
    assert_same(("leaseway config check", &known), ("docs/reference/configuration.md", &documented));
}

#[test]
fn exit_codes_are_documented() {
    let code = read("src/cli/error.rs");
    let constants = code.lines().filter_map(|line| line.trim().strip_prefix("const ")?.split_once(": u8 = "));
    let codes = constants.map(|(_, value)| value.trim_end_matches(';').to_owned());
    let codes: BTreeSet<String> = codes.chain(["0".to_owned(), "1".to_owned()]).collect();
    assert!(codes.len() > 4, "{codes:?}");
    let rows = rows(&read("docs/reference/exit-codes.md"));
    let documented: BTreeSet<String> = rows.iter().map(|(_, cells)| plain(&cells[0])).collect();
    assert_same(("src/cli/error.rs", &codes), ("docs/reference/exit-codes.md", &documented));
}

#[test]
fn http_paths_are_documented() {
    let code =
        [root().join("src/server"), root().join("src/gateway")].map(|folder| files_below(&folder, &["rs"])).concat();
    let routes = code.iter().flat_map(|(_, text)| text.split(".route(\"").skip(1));
    let mut routes: BTreeSet<String> = routes.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    // The gateway's paths are in its table of operations and beside its OpenAPI document.
    let tables = [read("src/gateway/http/operation.rs"), read("src/gateway/http/openapi.rs")];
    let is_path = |text: &&str| text.starts_with("/v1/") || text.ends_with(".json");
    routes.extend(tables.iter().flat_map(|text| text.split('"')).filter(is_path).map(str::to_owned));
    let rows = rows(&read("docs/reference/http.md"));
    let named = rows.iter().flat_map(|(_, cells)| quoted(&cells[0])).filter(|path| path.starts_with('/'));
    let documented: BTreeSet<String> = named.map(|path| path.split('?').next().unwrap().to_owned()).collect();
    assert_same(("the router", &routes), ("docs/reference/http.md", &documented));
}

/// Services and methods of all listeners.
#[test]
fn services_are_documented() {
    let (mut services, mut methods) = (BTreeSet::new(), Vec::new());
    for (_, text) in files_below(&root().join("proto"), &["proto"]) {
        let package = text.lines().find_map(|line| line.strip_prefix("package ")).unwrap().trim_end_matches(';');
        let word = |line: &str, before: &str| {
            Some(line.trim().strip_prefix(before)?.split(|char: char| !char.is_alphanumeric()).next()?.to_owned())
        };
        services.extend(text.lines().filter_map(|line| word(line, "service ")).map(|name| format!("{package}.{name}")));
        methods.extend(text.lines().filter_map(|line| word(line, "rpc ")));
    }
    let page = read("docs/reference/ports.md");
    let named = quoted(&page).into_iter().filter(|name| {
        ["leaseway.", "doorman.", "envoy.service.", "ratelimit.service."]
            .iter()
            .any(|package| name.starts_with(package))
    });
    assert_same(("proto", &services), ("docs/reference/ports.md", &named.collect::<BTreeSet<_>>()));
    let missing: Vec<String> = methods.into_iter().filter(|method| !page.contains(method.as_str())).collect();
    complain("methods missing in docs/reference/ports.md", &missing);
}
