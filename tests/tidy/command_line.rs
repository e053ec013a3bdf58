//! The command line, read from the binary's `--help`.

use crate::binary;

/// A flag of a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flag {
    /// `peers list`.
    pub(crate) command: String,
    pub(crate) name: String,
    pub(crate) variable: Option<String>,
    pub(crate) default: Option<String>,
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let (variable, default) = (or_none(&self.variable), or_none(&self.default));
        write!(f, "`{}` {}, variable {variable}, default {default}", self.command, self.name)
    }
}

/// Runs `leaseway` and returns standard output and standard error.
pub(crate) fn leaseway(arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(binary::path());
    command.args(arguments).env("COLUMNS", "1000");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEWAY_")) {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Every command without subcommands, with its help.
pub(crate) fn commands() -> Vec<(String, String)> {
    let (mut ahead, mut found) = (vec![Vec::<String>::new()], Vec::new());
    while let Some(command) = ahead.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let mut help = leaseway(&arguments);
        if help.contains("\n      --help-all ") {
            *arguments.last_mut().expect("just pushed") = "--help-all";
            help = leaseway(&arguments);
        }
        let below = subcommands(&help);
        if below.is_empty() {
            found.push((command.join(" "), help));
        }
        ahead.extend(below.into_iter().map(|name| [&command[..], &[name]].concat()));
    }
    found.sort();
    found
}

fn subcommands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
    let names = list.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

pub(crate) fn flags(command: &str, help: &str) -> Vec<Flag> {
    let mut blocks: Vec<String> = Vec::new();
    for line in help.lines() {
        let text = line.trim();
        let begins = ["      --", "  -", ""].into_iter().any(|indent| {
            line.strip_prefix(indent).is_some_and(|rest| rest.starts_with(|char: char| char.is_alphanumeric()))
        });
        if begins {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            *block = format!("{block} {text}").trim().to_owned();
        }
    }
    // The name of `-o, --output` is the long one.
    let long = |block: &String| block.split_once(", --").map_or_else(|| block.clone(), |(_, long)| format!("--{long}"));
    let blocks = blocks.iter().map(|block| if block.starts_with("-o, ") { long(block) } else { block.clone() });
    let flags = blocks.filter(|block| block.starts_with("--") && !block.starts_with("--help-all"));
    flags
        .map(|block| Flag {
            command: command.to_owned(),
            name: block.split([' ', '=', '[']).next().unwrap().to_owned(),
            variable: between(&block, "[env: ", "=]"),
            default: between(&block, "[default: ", "]"),
        })
        .collect()
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    Some(text.split_once(before)?.1.split_once(after)?.0.to_owned())
}
