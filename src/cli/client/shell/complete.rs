//! Tab completion: commands, and the client and resource names used before.

use std::collections::BTreeSet;

use rustyline::{Context, Helper, completion::Completer, highlight::Highlighter, hint::Hinter, validate::Validator};

use super::command::{Argument, COMMANDS, ShellCommand};
use crate::output::shell_quoted;

#[derive(Default)]
pub(super) struct Names {
    clients: BTreeSet<String>,
    resources: BTreeSet<String>,
}

impl Names {
    /// Remembers the client and resource of a line, if it parses.
    pub(super) fn learn(&mut self, line: &str) {
        match ShellCommand::parse(line) {
            Ok(Some(ShellCommand::Get { client, resource, .. } | ShellCommand::Release { client, resource })) => {
                self.clients.insert(client);
                self.resources.insert(resource);
            }
            Ok(Some(ShellCommand::Watch { resource })) => {
                self.resources.insert(resource);
            }
            _ => {}
        }
    }

    /// The start of the word at the cursor, and its completions.
    pub(super) fn complete(&self, typed: &str) -> (usize, Vec<String>) {
        let start = typed.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let (before, word) = typed.split_at(start);
        // `None` inside a quotation, where a space does not begin a word.
        let candidates = shlex::split(before).map_or_else(Vec::new, |words| self.candidates(&words));
        let fits = |name: &&str| name.starts_with(word) || shell_quoted(name).starts_with(word);
        (start, candidates.into_iter().filter(fits).map(shell_quoted).collect())
    }

    fn candidates(&self, words: &[String]) -> Vec<&str> {
        let Some((command, arguments)) = words.split_first() else {
            return COMMANDS.iter().map(|usage| usage.name).collect();
        };
        let usage = COMMANDS.iter().find(|usage| usage.name == command);
        match usage.and_then(|usage| usage.arguments.get(arguments.len())) {
            Some(Argument::Client) => self.clients.iter().map(String::as_str).collect(),
            Some(Argument::Resource) => self.resources.iter().map(String::as_str).collect(),
            Some(Argument::Capacity) | None => Vec::new(),
        }
    }
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(Names::complete(self, &line[..pos]))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(typed: &str) -> (usize, Vec<String>) {
        let mut names = Names::default();
        for line in ["get alice mysql 1", "release bob 'my cache'", "watch memcached", "get carol", "nonsense dave"] {
            names.learn(line);
        }
        names.complete(typed)
    }

    #[test]
    fn the_first_word_is_a_command() {
        assert_eq!(offered("re"), (0, vec!["release".to_owned()]));
        assert_eq!(offered("").1.len(), COMMANDS.len());
        assert_eq!(offered(" h"), (1, vec!["help".to_owned()]));
    }

    #[test]
    fn arguments_are_completed_by_their_kind() {
        assert_eq!(offered("get "), (4, vec!["alice".to_owned(), "bob".to_owned()]));
        assert_eq!(offered("get alice me"), (10, vec!["memcached".to_owned()]));
        assert_eq!(offered("watch mys"), (6, vec!["mysql".to_owned()]));
        assert_eq!(offered("get alice mysql "), (16, vec![]));
        assert_eq!(offered("show "), (5, vec![]));
        assert_eq!(offered("nonsense "), (9, vec![]));
    }

    #[test]
    fn names_with_spaces_are_offered_in_quotes() {
        assert_eq!(offered("watch my"), (6, vec!["'my cache'".to_owned(), "mysql".to_owned()]));
        assert_eq!(offered("watch 'my"), (6, vec!["'my cache'".to_owned()]));
        assert_eq!(offered("watch 'my c"), (10, vec![]));
    }
}
