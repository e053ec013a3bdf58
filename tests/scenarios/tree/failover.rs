//! Masters of a region and of the root die. Clients at the leaves keep their leases.

use crate::harness::{
    config::{ConfigFile, Template},
    crowd::Crowd,
    peers::Peers,
    tree::Tree,
};

const CAPACITY: f64 = 100.0;

fn tree() -> Tree {
    // Long enough for a busy machine. Refreshes at the root are twice as frequent as at the leaves.
    let template = Template { lease: 12, refresh: 2, ..Template::fair("*", CAPACITY) };
    Tree::start(3, 2, ConfigFile::of(&[template]))
}

/// Kills and restarts the master twice while clients change their wants.
fn kill_masters(victims: &mut Peers, crowd: &mut Crowd) {
    for _ in 0..2 {
        crowd.stir(50);
        let master = victims.master();
        victims.kill(master);
        crowd.stir(100);
        victims.master();
        victims.run(master, &[]);
        crowd.stir(100);
    }
    crowd.wait_until_all_is_out(CAPACITY);
}

fn crowd(tree: &Tree) -> Crowd {
    let crowd = Crowd::among(20, &tree.endpoints());
    crowd.wait_until_all_is_out(CAPACITY);
    crowd
}

#[test]
fn a_regions_master_dies_and_its_leaves_go_on() {
    let mut tree = tree();
    let mut crowd = crowd(&tree);
    kill_masters(&mut tree.region, &mut crowd);
    crowd.assert_never_too_much(CAPACITY);
}

#[test]
fn the_roots_master_dies_and_all_go_on() {
    let mut tree = tree();
    let mut crowd = crowd(&tree);
    kill_masters(&mut tree.root, &mut crowd);
    crowd.assert_never_too_much(CAPACITY);
}
