use leaseway_sim::{accounting::figures::RunOptions, runner::Outcomes};

use super::*;
use crate::simulate::SimulateArgs;

fn drawn(line: &[&str]) -> Option<String> {
    let args = SimulateArgs::parse(&[&["simulate", "--length", "20s"], line].concat()).expect("valid");
    let cases = args.cases().expect("they are valid");
    let run = |case: &crate::simulate::args::Case| -> Outcomes {
        vec![
            case.plan.run(1, RunOptions::default()).map_err(Box::new),
            case.plan.run(2, RunOptions::default()).map_err(Box::new),
        ]
    };
    draw(&cases.iter().map(|case| Simulated::of(case, run(case))).collect::<Vec<_>>())
}

#[test]
fn a_parameter_with_several_numbers_is_drawn_and_nothing_else_is() {
    let svg = drawn(&["pool_surge", "--set", "raise_tc_s=900,3600"]).expect("two numbers");
    assert!(svg.contains("overloads in 8 h against raise_tc_s") && svg.contains(">900</text>"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 2 * 2, "two figures with two values");
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
fn runs_without_any_stand_below_the_logarithms() {
    let axis = |found: [f64; 2]| {
        let run = |overloads_in_8_h: f64| -> Vec<Figures> {
            let args = SimulateArgs::parse(&["simulate", "pool_surge", "--length", "20s"]).expect("valid");
            let mut figures =
                args.cases().expect("valid")[0].plan.run(1, RunOptions::default()).expect("nothing breaks");
            figures.pool.as_mut().expect("it is a pool").overloads_in_8_h = overloads_in_8_h;
            vec![figures]
        };
        let runs = found.map(run);
        let values = vec![(1.0, &runs[0][..]), (2.0, &runs[1][..])];
        let up = POOL[0].up(&[SweptCases { name: "n".into(), parameter: "p", values }]);
        (up.marks.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), found.map(|found| (up.place)(found)))
    };
    assert_eq!(axis([1.0, 100.0]), (vec!["1".into(), "10".into(), "100".into()], [0.0, 1.0]));
    assert_eq!(axis([0.0, 10.0]), (vec!["0".into(), "10".into(), "100".into()], [0.0, MARGIN]));
}

#[test]
fn numbers_have_three_digits_or_as_many_as_they_need() {
    let numbers = [57_600.0, 12.34, 0.25, 0.012_345, 3.0, 0.0].map(rounded);
    assert_eq!(numbers, ["57600", "12.3", "0.25", "0.0123", "3", "0"]);
}
