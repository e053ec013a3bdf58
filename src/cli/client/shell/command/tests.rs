use super::*;

fn parsed(line: &str) -> Option<ShellCommand> {
    ShellCommand::parse(line).expect(line)
}

#[test]
fn every_command_is_parsed() {
    let (client, resource) = ("alice".to_owned(), "mysql".to_owned());
    let release = ShellCommand::Release { client: client.clone(), resource: resource.clone() };
    let wants = Amount::new(2.5).expect("an amount");
    let get = ShellCommand::Get { client, resource: resource.clone(), wants };
    for (line, command) in [
        ("get alice mysql 2.5", Some(get)),
        ("release alice mysql", Some(release)),
        ("  watch   mysql ", Some(ShellCommand::Watch { resource })),
        ("show", Some(ShellCommand::Show)),
        ("master", Some(ShellCommand::Master)),
        ("help", Some(ShellCommand::Help)),
        ("quit", Some(ShellCommand::Quit)),
        ("q", Some(ShellCommand::Quit)),
        ("bye", Some(ShellCommand::Quit)),
        ("", None),
        ("# get alice mysql 1", None),
    ] {
        assert_eq!(parsed(line), command, "{line}");
    }
    for usage in &COMMANDS {
        assert!(parsed(&usage.line().replace("CAPACITY", "1")).is_some(), "{}", usage.line());
        assert!(help().contains(&usage.line()) && help().contains(usage.summary));
    }
}

#[test]
fn a_wrong_line_is_refused_with_the_right_one() {
    for (line, why) in [
        ("watch 'mysql", "a quotation mark is not closed, or a backslash ends the line"),
        ("get", "the client is missing: write `get CLIENT RESOURCE CAPACITY`"),
        ("get alice mysql", "the capacity is missing: write `get CLIENT RESOURCE CAPACITY`"),
        ("release alice", "the resource is missing: write `release CLIENT RESOURCE`"),
        ("get alice mysql 1 2 3", "unexpected `2`: write `get CLIENT RESOURCE CAPACITY`"),
        ("bye bye", "unexpected `bye`: write `quit`"),
        ("get '' mysql 1", "the name of the client must not be empty"),
        ("get alice mysql 1,5", "`1,5` is not a capacity: write a number above 0, like 40 or 2.5"),
        (
            "get 'al ice' mysql 0",
            "a capacity of 0 cannot be requested; to give up a lease write `release 'al ice' mysql`",
        ),
        ("relase a b", "unknown command `relase` (did you mean `release`?); `help` lists all commands"),
        ("xyz", "unknown command `xyz`; `help` lists all commands"),
    ] {
        assert_eq!(ShellCommand::parse(line).expect_err(line).to_string(), why);
    }
    for word in ["-1", "inf", "NaN", "1e300"] {
        let error = ShellCommand::parse(&format!("get alice mysql {word}")).expect_err(word).to_string();
        assert!(error.starts_with(&format!("a capacity of {word} must")), "{error}");
    }
}

/// Arbitrary text, and lines made of the words of commands.
#[test]
fn any_line_is_parsed_or_refused_and_quoted_names_are_read_back() {
    const WORDS: [&str; 16] = [
        "get ", "release ", "watch ", "show", "alice ", "mysql ", "'", "\"", "\\", "#", " ", "\t", "1e309", "-1",
        "40 ", "\u{1b}",
    ];
    bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        let of_words: String = bytes.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect();
        for line in [String::from_utf8_lossy(bytes).into_owned(), of_words] {
            match ShellCommand::parse(&line) {
                Ok(Some(ShellCommand::Get { client, resource, wants })) => {
                    let again = format!("get {} {} {}", shell_quoted(&client), shell_quoted(&resource), wants.get());
                    let read = ShellCommand::parse(&again);
                    assert_eq!(read, Ok(Some(ShellCommand::Get { client, resource, wants })), "{line:?}");
                }
                Ok(_) => {}
                Err(error) => assert!(!error.to_string().is_empty(), "{line:?}"),
            }
        }
    });
}
