use super::*;
use crate::types::claim::HolderKind;

fn record(id: usize) -> Holder {
    Holder::new(HolderKind::Client, id.to_string().into())
}

#[test]
fn records_of_several_blocks_keep_their_slots_and_the_last_vacant_one_is_taken_first() {
    let mut records = Records::default();
    let many = BLOCK * 2 + 3;
    for id in 0..many {
        assert_eq!(records.insert(record(id)) as usize, id);
    }
    for slot in [BLOCK - 1, BLOCK, BLOCK * 2 + 2] {
        assert_eq!(*records.remove(slot as u32).id, *slot.to_string());
    }
    assert!(records.get(BLOCK as u32).is_none() && records.get(many as u32).is_none());
    assert_eq!(records.len(), many - 3);
    let ids: Vec<String> = records.iter_from(BLOCK - 2).take(3).map(|(_, holder)| holder.id.to_string()).collect();
    assert_eq!(ids, [BLOCK - 2, BLOCK + 1, BLOCK + 2].map(|id| id.to_string()));
    let taken = [(); 4].map(|()| records.insert(record(many)) as usize);
    assert_eq!(taken, [BLOCK * 2 + 2, BLOCK, BLOCK - 1, many]);
}
