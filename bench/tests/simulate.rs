//! `simulate` as a user runs it: what it prints fits a terminal.

use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_leaseway-bench");

fn simulate(arguments: &[&str]) -> Output {
    Command::new(BENCH).arg("simulate").args(arguments).output().expect("it was built with this test")
}

fn table(arguments: &[&str]) -> Vec<String> {
    let output = simulate(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn widest(table: &[String]) -> usize {
    table.iter().map(|line| line.chars().count()).max().expect("a table has lines")
}

#[test]
fn one_case_is_lines_and_several_are_a_table_that_fits_a_terminal() {
    let one = table(&["one", "--length", "120s", "--seeds", "2"]);
    assert!(one[0].starts_with("| what") && widest(&one) < 80, "{one:#?}");
    assert!(one.iter().any(|line| line.starts_with("| of min(wants, capacity) %")), "{one:#?}");
    let cases = ["one", "two", "--length", "120s", "--seeds", "2", "--reuse", "confirmed,prompt"];
    let several = table(&cases);
    assert!(several.len() >= 6 && widest(&several[..6]) <= 130, "{several:#?}");
    assert!(several.last().unwrap().starts_with("with --wide, or in --json, also: "), "{several:#?}");
    let wide = table(&[&cases[..], &["--wide"]].concat());
    assert!(wide.len() == 6 && widest(&wide) > 200, "{wide:#?}");
}

#[test]
fn no_time_is_refused() {
    let refused = simulate(&["one", "--length", "0s"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("measures nothing"));
}
