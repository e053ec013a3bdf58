//! Gauges of resources as text that Prometheus reads, written at a scrape and forgotten after it: of thousands of
//! series a registry would need a hundred milliseconds and tens of megabytes.

use std::fmt::Write as _;

use crate::observe::metrics::help_of_gauge;

/// What is written of each metric so far, with its name.
#[derive(Default)]
pub(super) struct GaugeText(Vec<(&'static str, String)>);

impl GaugeText {
    /// `resource` is [escaped](escaped_label).
    pub(super) fn put(&mut self, name: &'static str, resource: &str, value: f64) {
        let place = self.0.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            let head = format!("# HELP {name} {}\n# TYPE {name} gauge\n", help_of_gauge(name));
            self.0.push((name, head));
            self.0.len() - 1
        });
        let text = &mut self.0[place].1;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}{{resource=\"{resource}\"}} {value}");
    }

    /// Behind what is there.
    pub(super) fn append_to(self, page: &mut String) {
        for (_, text) in self.0 {
            page.push_str(&text);
            page.push('\n');
        }
    }
}

/// A label's value between its quotes.
pub(super) fn escaped_label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_metric_stand_together_below_its_help() {
        let mut series = GaugeText::default();
        for (resource, value) in [("a", 2.5), ("b\"\\\n", 1e15)] {
            let resource = escaped_label(resource);
            series.put("doorman_server_has", &resource, value);
            series.put("leaseway_resource_learning", &resource, 0.0);
        }
        let mut page = "before 1\n".to_owned();
        series.append_to(&mut page);
        let expected = [
            "before 1",
            "# HELP doorman_server_has Capacity of the newest leases of all clients, by resource.",
            "# TYPE doorman_server_has gauge",
            r#"doorman_server_has{resource="a"} 2.5"#,
            r#"doorman_server_has{resource="b\"\\\n"} 1000000000000000"#,
            "",
            "# HELP leaseway_resource_learning 1 while the resource learns what was lent before, by resource.",
            "# TYPE leaseway_resource_learning gauge",
            r#"leaseway_resource_learning{resource="a"} 0"#,
            r#"leaseway_resource_learning{resource="b\"\\\n"} 0"#,
            "",
            "",
        ];
        assert_eq!(page, expected.join("\n"));
    }
}
