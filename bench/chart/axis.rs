//! Axes, with marks at numbers that people like.

/// A direction, with its marks. `place` is where between 0 and 1 a value stands.
pub(crate) struct Axis<'a> {
    pub(crate) label: &'a str,
    pub(crate) marks: Vec<(f64, String)>,
    pub(crate) place: Box<dyn Fn(f64) -> f64 + 'a>,
}

/// From one number to another, with about so many marks.
pub(crate) fn linear<'a>(label: &'a str, [from, to]: [f64; 2], marks: f64) -> Axis<'a> {
    let step = tick(to - from, marks);
    let digits = if step < 1.0 { (-step.log10()).ceil() as usize } else { 0 };
    let all = (from / step - 1e-9).ceil() as i64..=(to / step + 1e-9).floor() as i64;
    let marks = all.map(|mark| mark as f64 * step).map(|value| (value, grouped(value, digits))).collect();
    Axis { label, marks, place: Box::new(move |value| (value - from) / (to - from)) }
}

/// From one power of ten to another; every power has a mark.
pub(crate) fn powers<'a>(label: &'a str, least: f64, most: f64, word: impl Fn(f64) -> String) -> Axis<'a> {
    let low = (least.log10() + 1e-9).floor();
    let high = (most.log10() - 1e-9).ceil().max(low + 1.0);
    let marks = (low as i32..=high as i32).map(|power| 10f64.powi(power)).map(|value| (value, word(value))).collect();
    Axis { label, marks, place: Box::new(move |value: f64| (value.log10() - low) / (high - low)) }
}

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
    fn powers_of_ten_are_evenly_apart() {
        let axis = powers("clients", 10.0, 1e6, |value| value.to_string());
        assert_eq!(axis.marks.len(), 6);
        let places = [10.0, 1000.0, 1e6].map(|value| ((axis.place)(value) * 10.0).round());
        assert_eq!(places, [0.0, 4.0, 10.0]);
        assert_eq!(powers("", 5.0, 5.0, |value| value.to_string()).marks.len(), 2, "one figure has a scale as well");
    }

    #[test]
    fn a_linear_axis_has_round_marks_between_its_ends() {
        let axis = linear("%", [98.2, 101.0], 6.0);
        let marks: Vec<&str> = axis.marks.iter().map(|(_, text)| &text[..]).collect();
        assert_eq!(marks, ["98.5", "99.0", "99.5", "100.0", "100.5", "101.0"]);
        assert_eq!([98.2, 101.0].map(|value| (axis.place)(value)), [0.0, 1.0]);
    }

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
