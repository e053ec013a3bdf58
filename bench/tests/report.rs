//! `report` as a user runs it: from what the other commands write to a page and a picture.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const BENCH: &str = env!("CARGO_BIN_EXE_leaseway-bench");

struct CeilingProcess {
    child: Child,
    address: String,
}

impl CeilingProcess {
    fn start() -> CeilingProcess {
        let mut command = Command::new(BENCH);
        command.args(["ceiling", "--threads", "1"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it was built with this test");
        let mut line = String::new();
        let said = child.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("it says something");
        let address = line.trim().strip_prefix("listening on ").expect("it says where").to_owned();
        CeilingProcess { child, address }
    }
}

impl Drop for CeilingProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str], output: Option<&Path>) {
    let mut command = Command::new(BENCH);
    if let Some(path) = output {
        command.stdout(File::create(path).expect("the directory is ours"));
    }
    assert!(command.args(arguments).status().is_ok_and(|status| status.success()), "{arguments:?}");
}

fn report(arguments: &[&str]) -> Output {
    Command::new(BENCH).arg("report").args(arguments).output().expect("it was built with this test")
}

#[test]
fn what_was_measured_becomes_a_page_and_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().expect("a temporary path is text").to_owned();
    let (load, compare, simulate) = (file("load.json"), file("compare.json"), file("simulate.json"));
    let ceiling = CeilingProcess::start();
    let target = ceiling.address.as_str();
    let brief = ["--seconds", "0.2", "--warmup", "0.05"];
    let asked = ["load", "--target", target, "--json", "--rate", "200", "--clients", "20"];
    run(&[&asked[..], &brief].concat(), Some(Path::new(&load)));
    let server = format!("{BENCH} ceiling --threads 1 --listen 127.0.0.1:{{port}}");
    let compared = ["compare", "--a", &server, "--b", &server, "--fill", "--clients", "200:20,20", "--reps", "2"];
    run(&[&compared[..], &brief, &["--load", "1x4", "--resources", "1,5", "--json", &compare]].concat(), None);
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&compare).unwrap()).unwrap();
    let case = &written["cases"][0];
    for (side, clients) in [("a", 200), ("b", 20)] {
        assert_eq!((&case[side]["clients"], &case[side]["filled"]["clients"]), (&clients.into(), &clients.into()));
    }
    run(&["simulate", "one", "--seeds", "2", "--json", &simulate], None);

    let (html, svg) = (file("page.html"), file("pictures.svg"));
    let Output { status, stderr, .. } =
        report(&[&load, &compare, &simulate, "--html", &html, "--svg", &svg, "--title", "A < B"]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let Output { stderr: refused, .. } = report(&[&load]);
    assert!(String::from_utf8_lossy(&refused).contains("--html"), "nothing to write to is no use");
    let (html, svg) = (fs::read_to_string(html).unwrap(), fs::read_to_string(svg).unwrap());
    for text in [&html, &svg] {
        for expected in [
            "A &lt; B",
            "Throughput",
            "CPU time per request",
            "Cost against the number of clients: 1 resource, 1 × 4 in flight",
            "Cost against the number of clients: 5 resources, 1 × 4 in flight",
            "Latency: 20 clients, 1 resource, 16 × 16 in flight",
            "Latency: 200 and 20 clients, 5 resources",
            "What could be used and was, simulated",
            "open loop",
        ] {
            assert!(text.contains(expected), "{expected} is missing");
        }
        assert!(!text.contains("NaN") && !text.contains("inf\""), "something could not be computed");
        assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("@import"), "it needs something");
    }
    assert!(html.contains("leaseway-bench load --target") && html.contains("simulate one"), "what repeats it");
    assert!(html.contains("first ÷ second") && html.matches("<tr>").count() > 10);
    assert_eq!(unbalanced(&svg), None, "it is no XML");
}

/// The first tag that ends nothing, or is never ended.
fn unbalanced(xml: &str) -> Option<&str> {
    let mut open = Vec::new();
    // Nothing in these files hides a `<` or a `>`: text and attributes have them escaped.
    for tag in xml.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        let name = tag.split_whitespace().next()?;
        match name.strip_prefix('/') {
            None => open.push(name),
            Some(ended) if open.pop() == Some(ended) => {}
            Some(_) => return Some(name),
        }
    }
    open.pop()
}

#[test]
fn a_file_that_is_no_result_is_named_with_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd.json");
    fs::write(&file, r#"{"clients": 1, "hints": true, "start_s": "soon", "rise_s": []}"#).unwrap();
    let page = directory.path().join("page.html");
    let Output { status, stderr, .. } = report(&[file.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && stderr.contains("odd.json") && stderr.contains("`start_s`"), "{stderr}");
    assert!(!page.exists());
}
