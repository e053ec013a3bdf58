//! A floor ([`Changes::floor`]) beside the length of leases, in one number: formats 4 and 5 have a place for the length
//! alone. A version that does not know floors takes the number for a length that is longer than any, and so leaves
//! estates in force until their horizons: that errs on the safe side.
//!
//! The floor is stored as how many leases of the epoch that writes it are below it. Of large numbers the last digits
//! are missing: they are rounded up, and too high a floor errs on the safe side, too.

use leaseway_core::{Epoch, Millis, Token};

/// Set where there is a floor.
const HAS_FLOOR: u64 = 1 << 63;
/// The lower bits: a significand, and above it an exponent.
const SIGNIFICAND: u32 = 19;
const FLOOR: u32 = SIGNIFICAND + 5;
/// Stands for a floor of an earlier epoch, which stays where it is. No number is rounded up to this.
const STAYS: u64 = (1 << FLOOR) - 1;

/// The length of leases, with the floor of an epoch. One that is too far above the start of its epoch is left out.
pub(crate) fn encode(lease: Option<Millis>, floor: Option<Token>, epoch: Epoch) -> Option<u64> {
    let length = lease?.0;
    let below = |floor: Token| match floor.get().checked_sub(Token::first(epoch).get()) {
        Some(below) => rounded_up(below),
        None => Some(STAYS),
    };
    match floor.and_then(below) {
        Some(below) if length < 1 << (63 - FLOOR) => Some(HAS_FLOOR | length << FLOOR | below),
        _ => Some(length),
    }
}

/// The inverse of [`encode`].
pub(crate) fn decode(stored: Option<u64>, epoch: Epoch) -> (Option<Millis>, Option<Token>) {
    let Some(packed) = stored.filter(|stored| stored & HAS_FLOOR != 0) else { return (stored.map(Millis), None) };
    let (length, below) = ((packed & !HAS_FLOOR) >> FLOOR, packed & ((1 << FLOOR) - 1));
    let floor = match below {
        STAYS => 1,
        _ => Token::first(epoch).get().saturating_add((below & ((1 << SIGNIFICAND) - 1)) << (below >> SIGNIFICAND)),
    };
    (Some(Millis(length)), Token::new(floor))
}

/// The least number that is no smaller and can be stored, as it is stored.
fn rounded_up(number: u64) -> Option<u64> {
    let digits = u64::BITS - number.leading_zeros();
    let exponent = digits.saturating_sub(SIGNIFICAND);
    let significand = number.div_ceil(1 << exponent);
    // Rounding may need one digit more.
    let (exponent, significand) =
        if significand >> SIGNIFICAND == 0 { (exponent, significand) } else { (exponent + 1, significand >> 1) };
    let rounded = u64::from(exponent) << SIGNIFICAND | significand;
    (rounded < STAYS).then_some(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: Epoch = Epoch(1 << 40);

    fn floor(below: u64) -> Option<Token> {
        Token::new(Token::first(EPOCH).get() + below)
    }

    #[test]
    fn a_length_without_a_floor_is_stored_as_it_always_was() {
        assert_eq!(encode(Some(Millis(60_000)), None, EPOCH), Some(60_000));
        assert_eq!(decode(Some(60_000), EPOCH), (Some(Millis(60_000)), None));
        assert_eq!((encode(None, floor(3), EPOCH), decode(None, EPOCH)), (None, (None, None)));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        assert_eq!(encode(Some(Millis(1 << 39)), floor(3), EPOCH), Some(1 << 39), "leases of seventeen years");
        assert_eq!(encode(Some(Millis(5)), floor(1 << 60), EPOCH), Some(5));
    }

    #[test]
    fn the_floor_of_an_earlier_epoch_comes_back_as_one() {
        let (lease, read) = decode(encode(Some(Millis(5)), Token::new(7), EPOCH), EPOCH);
        assert_eq!((lease, read), (Some(Millis(5)), Token::new(1)));
    }

    proptest! {
        #[test]
        fn a_floor_comes_back_or_a_little_higher(length in 0..1_u64 << 39, below in 0..1_u64 << 50, shift in 0..50_u32) {
            let below = below >> shift;
            let stored = encode(Some(Millis(length)), floor(below), EPOCH);
            let (lease, read) = decode(stored, EPOCH);
            prop_assert_eq!(lease, Some(Millis(length)));
            prop_assert!(stored > Some(1 << 62), "longer than any lease");
            let read = read.expect("there was one").get() - Token::first(EPOCH).get();
            prop_assert!(read >= below && read - below <= below >> (SIGNIFICAND - 1));
            let again = decode(encode(lease, floor(read), EPOCH), EPOCH);
            prop_assert_eq!(again, (lease, floor(read)), "what was read is stored as it is");
        }
    }
}
