use super::*;
use crate::listen::waiting_bytes::Charge;

const IDLE: Duration = Duration::from_secs(600);
const LIMITS: ConnectionLimits =
    ConnectionLimits { most: 8, share: PrincipalShare::ALL, idle: Some(IDLE), stalled: Duration::from_secs(60) };

fn listener(limits: ConnectionLimits) -> OpenConnections {
    let waiting_bytes = WaitingBytes::new(1 << 20, 1 << 20, PrincipalShare::ALL);
    OpenConnections::new(limits, Arc::default(), Arc::new(waiting_bytes))
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn told(permit: &ConnectionPermit) -> Option<Ending> {
    *permit.connection.ending.borrow()
}

#[test]
fn a_principal_has_its_share_and_newcomers_get_the_rest() {
    let open = listener(ConnectionLimits { share: PrincipalShare::default(), ..LIMITS });
    let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| open.admit(address(1))).collect();
    assert_eq!(permits.len(), 7);
    let newcomer = open.admit(address(2)).expect("there is room for it");
    assert!(open.admit(address(1)).is_none(), "it has most itself");
    drop(newcomer);
    assert!(open.admit(address(1)).is_none());
    drop(permits);
    assert_eq!(open.count(), 0);
    assert!(open.admit(address(1)).is_some());
}

#[test]
fn an_identity_has_one_share_for_all_its_addresses() {
    let open = listener(ConnectionLimits { share: PrincipalShare::default(), ..LIMITS });
    let identity = |name: &str| open.0.accounts.of_identity(&name.into());
    let (web, db) = (identity("web"), identity("db"));
    let admit = |last| open.admit(address(last)).expect("there is room");
    let mut permits: Vec<ConnectionPermit> = (0..6).map(admit).collect();
    assert!(permits.iter().all(|permit| permit.connection.count_to(&web)));
    permits.push(admit(6));
    assert!(permits[6].connection.count_to(&web), "the seventh is its share");
    let other = admit(7);
    assert!(!other.connection.count_to(&web), "it has its share, whatever the address");
    assert!(other.connection.count_to(&db), "another identity of that address has not");
    assert!(other.connection.count_to(&web), "once it is counted to one it stays so");
    assert_eq!([&web, &db].map(|account| open.0.table().taken.of(account.principal())), [7, 1]);
    drop((permits, other));
    assert_eq!(open.0.table().taken.in_all(), 0);
}

#[test]
fn a_newcomer_displaces_the_longest_idle_connection_of_the_principal_with_most() {
    let open = listener(LIMITS);
    let modest: Vec<ConnectionPermit> = (0..2).filter_map(|_| open.admit(address(2))).collect();
    let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| open.admit(address(1))).collect();
    assert_eq!(permits.len(), 6);
    let busy = Charge::request(&permits[0].connection.waiting_bytes, 1).expect("there is room");
    assert!(open.admit(address(1)).is_none(), "it would displace itself");
    let newcomer = open.admit(address(3)).expect("it displaces another");
    let ended: Vec<_> = permits.iter().map(told).collect();
    assert_eq!(ended, [None, Some(Ending::Soon), None, None, None, None], "the oldest idle one");
    assert!(modest.iter().chain([&newcomer]).all(|permit| told(permit).is_none()));
    drop(busy);
    // A leaving connection takes no slot, and its end frees none.
    drop(permits);
    assert_eq!(open.0.table().taken.in_all(), 3);
}

#[test]
fn idle_and_stalled_connections_end() {
    let open = listener(LIMITS);
    let permit = || open.admit(address(1)).expect("there is room");
    let (idle, stalled, waiting) = (permit(), permit(), permit());
    let _answer = Charge::answer(&stalled.connection.waiting_bytes, 100).expect("there is room");
    let _request = Charge::request(&waiting.connection.waiting_bytes, 100).expect("there is room");
    let endings = || [&idle, &stalled, &waiting].map(told);
    let begin = Instant::now();
    let check = |now| open.0.check(now, SystemTime::now());
    check(begin);
    assert_eq!(endings(), [None; 3]);
    check(begin + LIMITS.stalled);
    assert_eq!(endings(), [None, Some(Ending::Now), None]);
    // A request counts as activity.
    drop(Charge::request(&idle.connection.waiting_bytes, 100));
    check(begin + IDLE);
    assert_eq!(endings()[0], None);
    check(begin + IDLE * 2);
    assert_eq!(endings(), [Some(Ending::Soon), Some(Ending::Now), None], "a stream may wait");
}

#[test]
fn a_busy_connection_ends_when_its_certificate_expires() {
    let open = listener(LIMITS);
    let permit = open.admit(address(1)).expect("there is room");
    let _busy = Charge::request(&permit.connection.waiting_bytes, 100).expect("there is room");
    let end = SystemTime::now() + Duration::from_secs(60);
    permit.connection.ends_at(end);
    open.0.check(Instant::now(), end - Duration::from_millis(1));
    assert_eq!(told(&permit), None);
    open.0.check(Instant::now(), end);
    assert_eq!((told(&permit), open.0.table().taken.in_all()), (Some(Ending::Soon), 0));
}

#[test]
fn a_connection_with_many_invalid_tokens_is_closed() {
    let open = listener(LIMITS);
    let (few, many) = (open.admit(address(1)).expect("a permit"), open.admit(address(1)).expect("a permit"));
    for _ in 0..3 * MAX_REFUSED {
        few.connection.refused_token();
        open.0.check(Instant::now(), SystemTime::now());
    }
    assert_eq!(told(&few), None, "one in each second");
    (0..MAX_REFUSED).for_each(|_| many.connection.refused_token());
    assert_eq!(told(&many), None);
    many.connection.refused_token();
    assert_eq!(told(&many), Some(Ending::Soon));
}

#[test]
fn after_many_invalid_tokens_an_address_waits_for_the_next_second() {
    let open = listener(ConnectionLimits { most: 1000, ..LIMITS });
    let other = open.admit(address(2)).expect("a permit");
    let mut tokens = 0;
    // Uses a new connection for each token, because one with many of them ends.
    let last = loop {
        let permit = open.admit(address(1)).expect("a permit");
        permit.connection.refused_token();
        tokens += 1;
        if !permit.connection.may_prove() {
            break permit;
        }
    };
    assert_eq!(tokens, 200);
    assert!(other.connection.may_prove());
    open.0.accounts.forget_refused();
    assert!(last.connection.may_prove());
}

#[test]
fn without_an_idle_timeout_no_connection_is_closed_or_displaced() {
    let open = listener(ConnectionLimits { idle: None, ..LIMITS });
    let permits: Vec<ConnectionPermit> = std::iter::from_fn(|| open.admit(address(1))).collect();
    assert!(open.admit(address(2)).is_none());
    open.0.check(Instant::now() + IDLE * 2, SystemTime::now());
    assert!(permits.iter().all(|permit| told(permit).is_none()));
}
