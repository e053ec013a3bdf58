use serde_json::Value;

use super::*;

fn parts(parts: &[i64]) -> Vec<UnitPart> {
    let part =
        |(slot, part): (usize, &i64)| UnitPart { slot: slot as u32, id: format!("c{slot:02}").into(), part: *part };
    parts.iter().enumerate().map(part).collect()
}

impl Rotation {
    /// Deals to holders that are in no group.
    fn deal_to_all(&mut self, now: Millis, period: Millis, version: u64, parts: &[UnitPart], units: usize) -> Vec<u32> {
        let takers: Vec<Taker> = in_order(parts).into_iter().map(Taker::Holder).collect();
        self.deal(now, period, version, parts, &takers, units)
    }
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().expect("an array").iter().map(|number| number.as_i64().expect("a whole number")).collect()
}

/// Replays the vectors of request counting. They give shares as fractions of the sum of the weights.
#[test]
fn units_follow_the_vectors() {
    let file: Value = serde_json::from_str(include_str!("../../../client/testdata/byrequests.json"))
        .expect("the vectors can be read");
    let vectors = file["unit_rounds"].as_array().expect("vectors");
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let (weights, capacity) = (numbers(&vector["weights"]), vector["capacity_units"].as_i64().expect("units"));
        let sum: i64 = weights.iter().sum();
        let shares: Vec<i64> = weights.iter().map(|weight| capacity * weight % sum).collect();
        let takers: Vec<Taker> = (0..weights.len()).map(Taker::Holder).collect();
        let mut credits = vec![0; weights.len()];
        for expected in vector["units"].as_array().expect("rounds") {
            let mut units: Vec<i64> = weights.iter().map(|weight| capacity * weight / sum).collect();
            let left = usize::try_from(shares.iter().sum::<i64>() / sum).expect("not negative");
            step(&mut credits, &shares, left, sum, &takers).into_iter().for_each(|winner| units[winner] += 1);
            assert_eq!(units, numbers(expected), "{}", vector["id"]);
        }
        assert_eq!(credits, numbers(&vector["final_status"]), "{}", vector["id"]);
    }
}

#[test]
fn units_match_dues_in_the_long_run() {
    // Due 0.3, 0.7, 0.25, 0.75 and 0.5 of a unit: 2.5 are left over in all, of which 2 can be given.
    let dues = [0.3, 0.7, 0.25, 0.75, 0.5].map(|due| part_of(Amount::clamped(due)));
    let (mut rotation, parts) = (Rotation::default(), parts(&dues));
    let mut had = [0; 5];
    for round in 0..1000 {
        let winners = rotation.deal_to_all(Millis(round * 10), Millis(10), 1, &parts, left_over(&parts));
        assert_eq!(winners.len(), 2);
        winners.into_iter().for_each(|slot| had[slot as usize] += 1);
    }
    for (had, due) in had.iter().zip([0.3, 0.7, 0.25, 0.75, 0.5]) {
        assert!((f64::from(*had) - due * 1000.0 * 2.0 / 2.5).abs() <= 1.0, "{had} for {due}");
    }
}

#[test]
fn dealing_again_within_a_rotation_charges_no_holder_twice() {
    let (mut rotation, parts) = (Rotation::default(), parts(&[UNIT / 2, UNIT / 2]));
    assert_eq!(rotation.deal_to_all(Millis(0), Millis(10_000), 1, &parts, 1), [0]);
    assert!(
        !rotation.is_due(Millis(9_999), 1) && !rotation.is_due(Millis(999), 2) && rotation.is_due(Millis(1_000), 2)
    );
    assert_eq!(
        rotation.deal_to_all(Millis(1_000), Millis(10_000), 2, &parts, 1),
        [0],
        "the same rotation, so the same winner"
    );
    assert_eq!(rotation.ends(), Millis(10_000));
    assert!(rotation.is_due(Millis(10_000), 2));
    assert_eq!(rotation.deal_to_all(Millis(10_000), Millis(10_000), 2, &parts, 1), [1]);
}

#[test]
fn the_next_holder_in_a_slot_begins_without_debt() {
    let (mut rotation, parts) = (Rotation::default(), parts(&[UNIT / 2, UNIT / 2]));
    assert_eq!(rotation.deal_to_all(Millis(0), Millis(10), 1, &parts, 1), [0]);
    rotation.forget(0);
    rotation.forget(77);
    assert_eq!(rotation.deal_to_all(Millis(10), Millis(10), 1, &parts, 1), [1], "it is still owed half a unit");
    assert_eq!(rotation.deal_to_all(Millis(20), Millis(10), 1, &parts, 1), [0]);
}

#[test]
fn nearly_whole_units_are_whole() {
    assert_eq!(whole(Amount::clamped(2.999_999_999_9), false).get(), 3.0);
    assert_eq!(whole(Amount::clamped(2.5), false).get(), 2.0);
    assert_eq!(whole(Amount::clamped(2.5), true).get(), 3.0);
    assert_eq!(whole(Amount::clamped(2.0), true).get(), 2.0, "a whole due has no fraction to round up");
    assert_eq!(whole(Amount::MAX, true), Amount::MAX);
    let third = part_of(Amount::clamped(10.0 / 3.0));
    assert_eq!(left_over(&parts(&[third, third, third])), 1);
    assert_eq!(left_over(&parts(&[third, third])), 0);
}

/// Two groups in one that is due three units: each of the six holders is due half of one.
#[test]
fn groups_get_their_due_rounded_down_or_up() {
    let parts = parts(&[UNIT / 2; 10]);
    let group = |positions: std::ops::Range<usize>| Taker::Group(positions.map(Taker::Holder).collect());
    let takers = [Taker::Group(vec![group(0..3), group(3..6)]), group(6..10)];
    let (mut rotation, mut had) = (Rotation::default(), [0; 10]);
    for round in 0..100 {
        let winners = rotation.deal(Millis(round * 10), Millis(10), 1, &parts, &takers, left_over(&parts));
        let of = |slots: std::ops::Range<u32>| winners.iter().filter(|slot| slots.contains(slot)).count();
        assert_eq!((of(0..6), of(6..10)), (3, 2), "{winners:?}");
        assert!((1..=2).contains(&of(0..3)) && (1..=2).contains(&of(3..6)), "{winners:?}");
        winners.iter().for_each(|slot| had[*slot as usize] += 1);
    }
    assert!(had.iter().all(|had| (49..=51).contains(had)), "{had:?}");
}
