use super::*;
use leaseway_core::resource::watch_list::HintReason;

const CLIENT: HolderKind = HolderKind::Client;

fn watchers(most: usize) -> Arc<Watchers> {
    Arc::new(Watchers::new(most, PrincipalShare::ALL))
}

fn start(watchers: &Arc<Watchers>, id: &str) -> Watch {
    watchers.start(CLIENT, id.into(), Principal::NONE).expect("there is room")
}

/// Hints the client. Returns whether it is watched.
fn hint(watchers: &Watchers, resource: &str, id: &str) -> bool {
    let mut hints = vec![Hint { kind: CLIENT, id: id.into(), reason: HintReason::Grow }];
    watchers.hint(&resource.into(), &mut hints);
    hints.is_empty()
}

async fn told(watch: &Watch) -> PendingHints {
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), watch.pending());
    waiting.await.expect("something is pending").expect("it was not replaced")
}

async fn is_told_nothing(watch: &Watch) -> bool {
    tokio::time::timeout(std::time::Duration::from_secs(1), watch.pending()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn each_resource_is_hinted_once_in_order() {
    let watchers = watchers(10);
    let watch = start(&watchers, "a");
    assert!(is_told_nothing(&watch).await);
    for resource in ["r2", "r1", "r2"] {
        assert!(hint(&watchers, resource, "a"));
    }
    assert_eq!(told(&watch).await.resources, ["r2".into(), "r1".into()]);
    assert!(is_told_nothing(&watch).await, "hints are delivered once");
    assert!(hint(&watchers, "r2", "a"));
    assert_eq!(told(&watch).await.resources, ["r2".into()]);
}

#[tokio::test(start_paused = true)]
async fn too_many_resources_become_everything() {
    let watchers = watchers(10);
    let watch = start(&watchers, "a");
    let name = |n: usize| -> Arc<str> { format!("r{n}").into() };
    for n in 0..MAX_PENDING {
        hint(&watchers, &name(n), "a");
    }
    let most = told(&watch).await;
    assert_eq!((most.resources.len(), most.everything), (MAX_PENDING, false));
    for n in 0..=MAX_PENDING {
        hint(&watchers, &name(n), "a");
    }
    hint(&watchers, "one more", "a");
    assert_eq!(told(&watch).await, PendingHints { everything: true, ..PendingHints::default() });
    hint(&watchers, "r", "a");
    assert_eq!(told(&watch).await.resources, ["r".into()]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_watch_replaces_the_older_and_survives_its_end() {
    let watchers = watchers(1);
    let older = start(&watchers, "a");
    let later = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        start(&watchers, "a")
    };
    let (ended, newer) = tokio::join!(older.pending(), later);
    assert_eq!(ended, Err(Ended::Replaced), "a waiting stream is woken");
    drop(older);
    assert_eq!(watchers.count(), 1);
    assert!(hint(&watchers, "r", "a"));
    assert_eq!(told(&newer).await.resources, ["r".into()]);
}

#[test]
fn watchers_are_limited_and_ended_ones_make_room() {
    let watchers = watchers(2);
    let (first, _second) = (start(&watchers, "a"), start(&watchers, "b"));
    let refused = watchers.start(CLIENT, "c".into(), Principal::NONE).expect_err("there is no room");
    assert!(refused.to_string().contains("(limit 2)") && refused.to_string().contains("--max-watchers"), "{refused}");
    drop(first);
    let node =
        watchers.start(HolderKind::Node, "b".into(), Principal::NONE).expect("a node is not the client of its name");
    assert_eq!(watchers.count(), 2);
    drop(node);
    assert!(!watchers.is_watched(HolderKind::Node, "b") && watchers.is_watched(CLIENT, "b"));
}

#[test]
fn hints_for_unwatched_holders_are_returned() {
    let watchers = watchers(2);
    assert!(!hint(&watchers, "r", "a"));
    drop(start(&watchers, "a"));
    assert!(!hint(&watchers, "r", "a"));
}

#[test]
fn a_reader_of_the_log_gets_every_start_once() {
    let watchers = watchers(10);
    let mut heard = watchers.started();
    let _a = start(&watchers, "a");
    let _b = start(&watchers, "b");
    let ids = |starts: Vec<(HolderKind, Arc<str>)>| starts.iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(watchers.started_since(&mut heard)), ["a", "b"]);
    assert_eq!(ids(watchers.started_since(&mut heard)), Vec::<String>::new());
    let _a_again = start(&watchers, "a");
    assert_eq!(ids(watchers.started_since(&mut heard)), ["a"]);
}

#[test]
fn a_reader_that_is_too_far_behind_gets_all_watched_holders() {
    let watchers = watchers(10);
    let (mut far_behind, mut just_in_time) = (watchers.started(), watchers.started() + 1);
    let _first = start(&watchers, "first");
    for _ in 0..LOG {
        drop(start(&watchers, "flapping"));
    }
    assert_eq!(watchers.started_since(&mut just_in_time).len(), LOG);
    assert_eq!(watchers.started_since(&mut far_behind), [(CLIENT, "first".into())]);
    assert_eq!(far_behind, watchers.started());
}

#[test]
fn a_principal_has_a_share_of_the_watchers() {
    let watchers = Arc::new(Watchers::new(8, PrincipalShare::default()));
    let start = |id: usize, principal| watchers.start(CLIENT, id.to_string().into(), Principal(principal));
    let mut streams: Vec<Watch> = (0..).map_while(|id| start(id, 1).ok()).collect();
    assert_eq!(streams.len(), 7);
    assert_eq!(start(100, 1).expect_err("it has its share"), TooManyWatchers::OfPrincipal(8));
    let other = start(200, 2).expect("there is room for another");
    assert_eq!(start(300, 3).expect_err("all slots are taken"), TooManyWatchers::InAll(8));
    // A replacement needs no new slot.
    streams.push(start(0, 1).expect("it is known"));
    drop((other, streams));
    assert_eq!(watchers.listening().by_principal.in_all(), 0);
    start(400, 1).expect("there is room again");
}
