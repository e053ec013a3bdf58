use std::collections::BTreeSet;

use leaseway_proto::doorman::ResourceResponse;

use super::*;

fn population(clients: u32) -> Population {
    Population {
        clients,
        resources: 3,
        resources_per_request: 2,
        resource_prefix: "r".into(),
        wants: WantsPattern::Uniform(1..=100),
        churn: 0.0,
        drops_late: false,
        seed: 7,
    }
}

#[test]
fn wants_are_parsed() {
    assert_eq!("uniform:1-100".parse(), Ok(WantsPattern::Uniform(1..=100)));
    assert_eq!("uniform".parse(), Ok(WantsPattern::Uniform(1..=100)));
    assert_eq!("changing".parse(), Ok(WantsPattern::Changing(1..=100)));
    assert_eq!("changing:5-5".parse(), Ok(WantsPattern::Changing(5..=5)));
    assert_eq!("climbing:20".parse(), Ok(WantsPattern::Climbing(20)));
    for wrong in ["", "climbing", "climbing:101", "fixed:1", "uniform:9-1", "uniform:x-2", "mixed:1-2"] {
        assert!(wrong.parse::<WantsPattern>().is_err(), "{wrong:?} was accepted");
    }
}

#[test]
fn every_lap_of_a_walk_visits_all_clients_in_another_order() {
    let mut walk = Walk::new(100, fastrand::Rng::with_seed(1));
    let mut lap = || (0..100).map(|_| walk.next()).collect::<Vec<_>>();
    let (first, second) = (lap(), lap());
    for lap in [&first, &second] {
        assert_eq!(lap.iter().collect::<BTreeSet<_>>().len(), 100);
    }
    assert_ne!(first, second);
}

#[test]
fn the_parts_of_all_threads_cover_all_clients() {
    let mut ids = BTreeSet::new();
    for part in 0..3 {
        let mut workload = Workload::part(population(10), part, 3);
        let mut request = GetCapacityRequest::default();
        for _ in 0..workload.walk.order.len() {
            workload.write(&mut request);
            assert!(ids.insert(request.client_id.clone()), "{:?} belongs to two threads", request.client_id);
        }
    }
    assert_eq!(ids.len(), 10);
}

#[test]
fn a_client_echoes_its_lease() {
    let mut workload = Workload::part(population(1), 0, 1);
    let mut request = GetCapacityRequest::default();
    let asker = workload.write(&mut request).asker;
    assert!(request.resource.iter().all(|asked| asked.has.is_none()));
    let wanted: Vec<_> = request.resource.iter().map(|asked| asked.wants).collect();

    let lease = Lease { capacity: Some(4.0), token: Some(9), expiry_time: Some(99), ..Lease::default() };
    // The second resource alone is answered: the first came too early.
    let answered = ResourceResponse {
        resource_id: request.resource[1].resource_id.clone(),
        gets: Some(lease),
        ..ResourceResponse::default()
    };
    let answer = GetCapacityResponse { response: vec![answered], ..Default::default() };
    assert_eq!(workload.settle(asker, &answer), Settled { granted: 1, ignored: 1 });

    workload.write(&mut request);
    assert_eq!(request.resource[0].has, None);
    let has = request.resource[1].has.unwrap();
    assert_eq!((has.capacity, has.token, has.expiry_time), (Some(4.0), Some(9), Some(99)));
    let still: Vec<_> = request.resource.iter().map(|asked| asked.wants).collect();
    assert_eq!(wanted, still, "uniform wants are stable");
}

/// An answer that grants everything asked for until `expiry_time`.
fn granted(request: &GetCapacityRequest, expiry_time: i64) -> GetCapacityResponse {
    let gets = Some(Lease { capacity: Some(1.0), expiry_time: Some(expiry_time), token: Some(5), ..Lease::default() });
    let respond = |asked: &ResourceRequest| ResourceResponse {
        resource_id: asked.resource_id.clone(),
        gets,
        ..ResourceResponse::default()
    };
    GetCapacityResponse { response: request.resource.iter().map(respond).collect(), ..Default::default() }
}

#[test]
fn clients_that_hold_a_lease_are_counted_once_and_until_it_ends() {
    let mut workload = Workload::part(population(10), 0, 1);
    let mut request = GetCapacityRequest::default();
    for turn in 0..10 {
        assert_eq!(workload.leased(), turn);
        let asker = workload.write(&mut request).asker;
        let answer = granted(&request, if turn < 3 { 50 } else { 70 });
        workload.settle(asker, &answer);
        workload.settle(asker, &answer);
    }
    assert_eq!(workload.leased(), 10);
    assert_eq!((workload.leased_beyond(40), workload.leased_beyond(60), workload.leased_beyond(70)), (10, 7, 0));
}

#[test]
fn a_leaving_client_releases_its_leases_or_stops_and_is_replaced() {
    let mut workload = Workload::part(Population { churn: 100.0, ..population(100) }, 0, 1);
    let mut request = GetCapacityRequest::default();
    let lap = |workload: &mut Workload, request: &mut GetCapacityRequest| {
        (0..100)
            .map(|_| {
                let turn = workload.write(request);
                assert_eq!(turn.newcomer, request.client_id.as_ref().unwrap().matches('-').count() == 2);
                assert!(!turn.newcomer || request.resource.iter().all(|asked| asked.has.is_none()));
                workload.settle(turn.asker, &granted(request, 99));
                turn.release
            })
            .collect::<Vec<_>>()
    };
    assert!(lap(&mut workload, &mut request).iter().all(Option::is_none), "none leaves that has not been there");
    let releases: Vec<_> = lap(&mut workload, &mut request).into_iter().flatten().collect();
    assert!((25..75).contains(&releases.len()), "{}", releases.len());
    for release in releases {
        assert_eq!(release.client_id.unwrap().matches('-').count(), 1, "the one that was there first");
        assert_eq!((release.resource_id.len(), release.token), (2, vec![5, 5]));
    }
    assert_eq!(workload.leased(), 100);
}

#[test]
fn an_answer_for_a_client_that_left_is_not_given_to_its_successor() {
    let mut workload = Workload::part(Population { churn: 100.0, ..population(1) }, 0, 1);
    let (mut first, mut second) = (GetCapacityRequest::default(), GetCapacityRequest::default());
    let came = workload.write(&mut first).asker;
    workload.settle(came, &granted(&first, 99));
    let left = workload.write(&mut first);
    workload.settle(left.asker, &granted(&first, 99));
    let newest = workload.write(&mut second);
    assert_ne!(first.client_id, second.client_id);
    workload.settle(left.asker, &granted(&first, 99));
    assert_eq!(workload.leased(), 0, "the newcomer has no answer yet");
    workload.settle(newest.asker, &granted(&second, 99));
    assert_eq!(workload.leased(), 1);
}

#[test]
fn a_client_that_drops_late_answers_uses_only_the_newest() {
    for drops_late in [false, true] {
        let mut workload = Workload::part(Population { drops_late, ..population(1) }, 0, 1);
        let (mut first, mut second) = (GetCapacityRequest::default(), GetCapacityRequest::default());
        let (earlier, latest) = (workload.write(&mut first).asker, workload.write(&mut second).asker);
        assert_eq!((first.drops_late(), second.drops_late()), (drops_late, drops_late));
        workload.settle(earlier, &granted(&first, 99));
        assert_eq!(workload.leased(), u32::from(!drops_late));
        workload.settle(latest, &granted(&second, 99));
        assert_eq!((workload.leased(), workload.held_beyond(98) > 0.0, workload.held_beyond(99)), (1, true, 0.0));
    }
}
