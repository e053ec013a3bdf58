//! `leaseway top`, in a pseudo-terminal.

use crate::harness::{
    config::{ConfigFile, Template},
    peers::Peers,
    terminal::Terminal,
    wait::eventually,
};

const WILD: &str = "wild\u{1b}[2J";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn top_sorts_by_contention_follows_the_master_and_restores_the_terminal() {
    let mut peers = Peers::start(3, ConfigFile::of(&[Template::fair("*", 100.0)]), &[]);
    let (mut alice, mut bob) = (peers.client("alice"), peers.client("bob\u{202e}"));
    alice.ask(&peers, "mysql", 1000.0);
    bob.ask(&peers, WILD, 10.0);
    let servers = peers.endpoints().join(",");
    let mut top = Terminal::start(&["top", "--every", "1", "--server", &servers], (110, 24));
    let mysql = top.line("1000 %");
    assert_eq!(words(&mysql)[..6], ["mysql", "1000", "%", "1000", "100", "100"], "{mysql}");
    let screen = top.screen();
    assert!(["OK", "WARN"].iter().any(|grade| screen[0].starts_with(grade)), "{screen:?}");
    let place = |with: &str| screen.iter().position(|line| line.contains(with));
    assert!(place("mysql") < place("wild\\u001b[2J"), "{screen:?}");
    let master = peers.master();
    assert!(screen[1].contains(&peers.grpc(master).to_string()), "{screen:?}");

    top.press("\u{1b}[B\r");
    assert!(top.line("clients of").contains("wild\\u001b[2J"));
    assert_eq!(words(&top.line("bob\\u202e"))[..2], ["bob\\u202e", "10"]);
    top.press("\u{7f}");
    top.line("1000 %");

    peers.kill(master);
    let next = peers.grpc(peers.master()).to_string();
    eventually("`top` follows the master", || top.screen()[1].contains(&next).then_some(()));
    eventually("`top` reports the dead peer", || top.screen()[0].contains("peers: ").then_some(()));
    assert!(!top.is_as_before());
    top.press("\u{3}");
    assert_eq!(top.ended().code(), Some(0));
    eventually("the screen is restored", || top.output().contains("\u{1b}[?1049l").then_some(()));
    assert!(top.is_as_before());
}
