//! Marks of axes at numbers that people like.

/// The distance of about so many marks up to `most`: 1, 2 or 5 of a power of ten.
pub(crate) fn tick(most: f64, marks: f64) -> f64 {
    let power = 10f64.powf((most / marks).log10().floor());
    let fits = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| most / step <= marks);
    fits.unwrap_or(power * 10.0)
}

/// To a number that a mark may stand at.
pub(crate) fn round_up(most: f64) -> f64 {
    let step = tick(most, 6.0);
    (most / step).ceil() * step
}

/// With a comma every three digits, as people write numbers that they compare.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let text = format!("{:.digits$}", value.abs());
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(whole, part)| (whole, Some(part)));
    let mut grouped = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    part.map_or(grouped.clone(), |part| format!("{grouped}.{part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_at_round_numbers() {
        assert_eq!([tick(300.0, 10.0), tick(3600.0, 10.0), tick(525.0, 6.0)], [50.0, 500.0, 100.0]);
        assert_eq!(round_up(525.0), 600.0);
    }

    #[test]
    fn thousands_are_told_apart() {
        let all = [0.0, 999.0, 1000.0, -1_234_567.0].map(|value| grouped(value, 0));
        assert_eq!(all, ["0", "999", "1,000", "-1,234,567"]);
        assert_eq!((grouped(1234.56, 1), grouped(f64::NAN, 1)), ("1,234.6".into(), "–".into()));
    }
}
