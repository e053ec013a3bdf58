use clap::Parser as _;

use super::*;
use crate::simulate::{Args, seeds, world::Keep};

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn drawn(line: &[&str]) -> Option<String> {
    let line = Line::parse_from([&["simulate", "--length", "20s"], line].concat());
    let cases = line.args.cases().expect("they are valid");
    let run = |case: &crate::simulate::args::Case| -> seeds::Outcomes {
        vec![case.plan.run(1, Keep::default()).map_err(Box::new), case.plan.run(2, Keep::default()).map_err(Box::new)]
    };
    let outcomes = cases.iter().map(run).collect();
    draw(&Report::new(&cases, outcomes))
}

#[test]
fn a_parameter_with_several_numbers_is_drawn_and_nothing_else_is() {
    let svg = drawn(&["pool_surge", "--set", "raise_tc_s=900,3600"]).expect("two numbers");
    assert!(svg.contains("overloads in 8 h against raise_tc_s") && svg.contains(">900</text>"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 2 * 2 * 2, "two figures of two seeds with two values");
    let svg = drawn(&["one", "--set", "min_request_interval=0.5,1"]).expect("two numbers");
    assert!(svg.contains("% of min(wants, capacity) had against min_request_interval"), "{svg}");
    assert!(svg.contains("the axis below is logarithmic"), "{svg}");
    for line in [
        &["pool_surge"][..],
        &["pool_surge", "--set", "raise_tc_s=900"],
        &["pool_surge", "--set", "raise_tc_s=900,900.0"],
        &["pool_surge", "--set", "drop_mode=slots,exp"],
        &["pool_surge", "--set", "raise_tc_s=900,3600", "--set", "connected_bias_s=1,2"],
    ] {
        assert!(drawn(line).is_none(), "{line:?}");
    }
}

#[test]
fn marks_of_logarithms_are_ones_twos_and_fives() {
    let axis = Axis { least: 0.4, most: 12.0, by_logarithm: true };
    assert_eq!(axis.marks(), [0.5, 1.0, 2.0, 5.0, 10.0]);
    assert!((axis.part(0.4), axis.part(12.0)) == (0.0, 1.0) && (axis.part((0.4f64 * 12.0).sqrt()) - 0.5).abs() < 1e-9);
    let axis = Axis { least: 98.2, most: 101.0, by_logarithm: false };
    assert_eq!(axis.marks(), [98.5, 99.0, 99.5, 100.0, 100.5, 101.0]);
}

#[test]
fn numbers_have_three_digits_or_as_many_as_they_need() {
    let numbers = [57_600.0, 12.34, 0.25, 0.012_345, 3.0, 0.0].map(rounded);
    assert_eq!(numbers, ["57600", "12.3", "0.25", "0.0123", "3", "0"]);
}
