use super::*;

fn parsed(line: &str) -> Option<ShellCommand> {
    ShellCommand::parse(line).expect("it can be understood")
}

fn refused(line: &str) -> String {
    ShellCommand::parse(line).expect_err("it cannot be understood").to_string()
}

fn amount(value: f64) -> Amount {
    Amount::new(value).expect("it is an ordinary number")
}

#[test]
fn every_command_is_understood() {
    let (client, resource) = ("alice".to_owned(), "mysql".to_owned());
    let wants = amount(2.5);
    assert_eq!(
        parsed("get alice mysql 2.5"),
        Some(ShellCommand::Get { client: client.clone(), resource: resource.clone(), wants })
    );
    assert_eq!(parsed("release alice mysql"), Some(ShellCommand::Release { client, resource: resource.clone() }));
    assert_eq!(parsed("  watch   mysql "), Some(ShellCommand::Watch { resource }));
    assert_eq!(
        [parsed("show"), parsed("master"), parsed("help")],
        [ShellCommand::Show, ShellCommand::Master, ShellCommand::Help].map(Some)
    );
    assert_eq!(["quit", "q", "bye"].map(parsed), [const { Some(ShellCommand::Quit) }; 3]);
}

#[test]
fn every_command_that_help_names_is_understood_as_help_says() {
    for usage in &COMMANDS {
        let words = usage.line().replace("CAPACITY", "1");
        assert!(parsed(&words).is_some(), "{words}");
        assert!(help().contains(&usage.line()) && help().contains(usage.summary));
    }
}

#[test]
fn nothing_is_no_command() {
    assert_eq!(["", "   ", "# get alice mysql 1"].map(parsed), [const { None }; 3]);
}

#[test]
fn quotation_marks_hold_names_together() {
    let expected = ShellCommand::Watch { resource: "my \"own\" sql".to_owned() };
    assert_eq!(parsed(r#"watch 'my "own" sql'"#), Some(expected.clone()));
    assert_eq!(parsed(&format!("watch {}", quoted(r#"my "own" sql"#))), Some(expected));
    assert_eq!(refused("watch 'mysql"), "a quotation mark is not closed, or a backslash ends the line");
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(refused("get"), "the client is missing: write `get CLIENT RESOURCE CAPACITY`");
    assert_eq!(refused("get alice"), "the resource is missing: write `get CLIENT RESOURCE CAPACITY`");
    assert_eq!(refused("get alice mysql"), "the capacity is missing: write `get CLIENT RESOURCE CAPACITY`");
    assert_eq!(refused("release alice"), "the resource is missing: write `release CLIENT RESOURCE`");
    assert_eq!(refused("watch"), "the resource is missing: write `watch RESOURCE`");
}

#[test]
fn what_is_too_much_is_named() {
    assert_eq!(refused("get alice mysql 1 2 3"), "`2` is too much: write `get CLIENT RESOURCE CAPACITY`");
    assert_eq!(refused("show mysql"), "`mysql` is too much: write `show`");
    assert_eq!(refused("bye bye"), "`bye` is too much: write `quit`");
}

#[test]
fn an_empty_name_is_refused() {
    assert_eq!(refused("get '' mysql 1"), "the client has to have a name, and \"\" is none");
    assert_eq!(refused("release alice ''"), "the resource has to have a name, and \"\" is none");
}

#[test]
fn capacities_are_numbers_above_zero() {
    for word in ["abc", "''", "1,5", "0x10"] {
        assert!(refused(&format!("get alice mysql {word}")).contains("is not a capacity: write a number"), "{word}");
    }
    for word in ["-1", "inf", "NaN", "1e300"] {
        assert!(
            refused(&format!("get alice mysql {word}")).starts_with(&format!("a capacity of {word} must")),
            "{word}"
        );
    }
    assert_eq!(
        refused("get 'al ice' mysql 0"),
        "a capacity of 0 cannot be asked for; to give up a lease write `release 'al ice' mysql`"
    );
}

#[test]
fn a_word_that_is_nearly_a_command_is_guessed() {
    assert_eq!(refused("relase a b"), "there is no command `relase` (did you mean `release`?); `help` lists them all");
    assert_eq!(refused("xyz"), "there is no command `xyz`; `help` lists them all");
}

/// Any line: as bytes are, or of what commands are made of.
#[test]
fn what_is_typed_is_understood_or_refused_in_words() {
    const PARTS: [&str; 24] = [
        "get ",
        "release ",
        "watch ",
        "show",
        "master",
        "help",
        "quit",
        "gte ",
        "alice ",
        "mysql ",
        "'",
        "\"",
        "\\",
        "#",
        " ",
        "\t",
        "1e309",
        "-1",
        "0",
        "0.0000001",
        "NaN",
        "40 ",
        "\u{202e}",
        "\u{1b}[2J",
    ];
    bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        let of_parts: String = bytes.iter().map(|byte| PARTS[usize::from(*byte) % PARTS.len()]).collect();
        for line in [String::from_utf8_lossy(bytes).into_owned(), of_parts] {
            match ShellCommand::parse(&line) {
                Ok(Some(ShellCommand::Get { client, resource, wants })) => {
                    let again = format!("get {} {} {}", quoted(&client), quoted(&resource), wants.get());
                    let read = ShellCommand::parse(&again);
                    assert_eq!(read, Ok(Some(ShellCommand::Get { client, resource, wants })), "{line:?}");
                }
                Ok(_) => {}
                Err(error) => assert!(!error.to_string().is_empty(), "{line:?}"),
            }
        }
    });
}
