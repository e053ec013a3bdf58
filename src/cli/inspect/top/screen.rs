//! Draws the view. Columns that do not fit are omitted, the least important first.

use leaseway_core::types::escaped;
use leaseway_proto::status::{Holder, Resource};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::source::Snapshot;
use super::view::{Order, View, pressure};
use leaseway_server::checkup::Severity;

use crate::inspect::status::{capacity, is_overridden, is_unlimited};
use crate::output::number;

/// A column: heading, width and content.
type Column<T> = (&'static str, u16, fn(&T) -> String);

/// The minimum width of ids.
const ID_WIDTH: u16 = 16;

/// The most important columns first.
const OF_RESOURCES: [Column<Resource>; 7] = [
    ("PRESSURE", 8, |resource| percent(pressure(resource))),
    ("WANTS", 11, |resource| short(resource.wants)),
    ("CAPACITY", 11, |resource| if is_unlimited(resource) { capacity(resource) } else { short(resource.capacity) }),
    ("GRANTED", 11, |resource| short(resource.granted)),
    ("HELD", 11, |resource| short(resource.held)),
    ("CLIENTS", 9, |resource| resource.subclients.max(resource.holders).to_string()),
    ("STATE", 14, state),
];

const OF_HOLDERS: [Column<Holder>; 6] = [
    ("WANTS", 11, |holder| short(holder.wants)),
    ("HAS", 11, |holder| short(holder.granted)),
    ("DUE", 11, |holder| short(holder.due)),
    ("HELD", 11, |holder| short(holder.held)),
    ("HELD FOR", 9, |holder| format!("{} s", holder.remaining_ms / 1000)),
    ("PRIORITY", 8, |holder| holder.priority.to_string()),
];

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let rows = [Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)];
    let [head, body, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view)), head);
    let mut state = TableState::default().with_selected(view.row);
    match (view.resource(), view.holders()) {
        (Some(_), Some(opened)) => {
            frame.render_stateful_widget(
                table(&opened.holder, "CLIENT", |holder| &holder.id, &OF_HOLDERS, body),
                body,
                &mut state,
            );
        }
        (Some(_), None) => {
            frame.render_widget(Paragraph::new("waiting for its clients, or the resource is gone"), body)
        }
        (None, _) if view.resources().is_empty() && view.seen.is_some() => {
            frame.render_widget(Paragraph::new("no resources yet: the first request for one creates it"), body);
        }
        (None, _) => {
            let table = table(view.resources(), "RESOURCE", |resource| &resource.resource_id, &OF_RESOURCES, body);
            frame.render_stateful_widget(table, body, &mut state);
        }
    }
    frame.render_widget(Paragraph::new(key_line(view)).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

fn heading(view: &View) -> Vec<Line<'static>> {
    let Some(seen) = &view.seen else {
        let what = view.error.as_deref().map_or("asking the cluster".to_owned(), |error| escaped(error).into());
        return vec![Line::from(what)];
    };
    let mut lines = vec![verdict(seen)];
    let master = seen.master.as_deref().unwrap_or("no master");
    let resources = seen.resources.len();
    let about = match view.resource() {
        Some(resource) => format!("clients of {resource}"),
        None => format!("{resources} resource{}", if resources == 1 { "" } else { "s" }),
    };
    lines.push(Line::from(escaped(&format!("{about} · {master} · {}", seen.configuration)).into_owned()));
    if let Some(error) = &view.error {
        let age = seen.at.elapsed().as_secs();
        lines.push(Line::styled(format!("as of {age} s ago: {}", escaped(error)), colour(Severity::Bad)));
    }
    lines
}

fn verdict(seen: &Snapshot) -> Line<'static> {
    let more = seen.findings.len().saturating_sub(1);
    let what = match (seen.findings.first(), more) {
        (None, _) => "all is well".to_owned(),
        (Some(finding), 0) => escaped(finding).into_owned(),
        (Some(finding), more) => format!("{} (and {more} more: leaseway check)", escaped(finding)),
    };
    let severity = match seen.severity {
        Severity::Ok => "OK",
        Severity::Warn => "WARN",
        Severity::Bad => "BAD",
    };
    Line::styled(format!("{severity}  {what}"), colour(seen.severity).add_modifier(Modifier::BOLD))
}

/// No colour if NO_COLOR is set.
fn colour(severity: Severity) -> Style {
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return Style::new();
    }
    Style::new().fg(match severity {
        Severity::Ok => Color::Green,
        Severity::Warn => Color::Yellow,
        Severity::Bad => Color::Red,
    })
}

fn key_line(view: &View) -> String {
    let order = match view.order {
        Order::Pressure => "pressure",
        Order::Wants => "wants",
        Order::Name => "name",
    };
    match view.resource() {
        Some(_) => "q quit  ↑↓ choose  Esc back".to_owned(),
        None => format!("q quit  ↑↓ choose  Enter clients  s sort (by {order})"),
    }
}

/// A table with as many columns as fit beside the ids.
fn table<'a, T>(
    all: &'a [T],
    heading: &'static str,
    id: fn(&T) -> &String,
    columns: &[Column<T>],
    area: Rect,
) -> Table<'a> {
    let mut room = area.width.saturating_sub(ID_WIDTH);
    let fits = |column: &&Column<T>| {
        let fits = column.1 < room;
        room = room.saturating_sub(column.1 + 1);
        fits
    };
    let columns: Vec<&Column<T>> = columns.iter().take_while(fits).collect();
    let right = |text: String, width: u16| Cell::from(format!("{text:>width$}", width = usize::from(width)));
    let row = |one: &T| {
        let cells = columns.iter().map(|(_, width, cell)| right(cell(one), *width));
        Row::new(std::iter::once(Cell::from(escaped(id(one)).into_owned())).chain(cells))
    };
    let headings = columns.iter().map(|(heading, width, _)| right((*heading).to_owned(), *width));
    let headings = Row::new(std::iter::once(Cell::from(heading)).chain(headings));
    let widths =
        std::iter::once(Constraint::Min(1)).chain(columns.iter().map(|(_, width, _)| Constraint::Length(*width)));
    Table::new(all.iter().map(row), widths)
        .header(headings.style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent.is_infinite() => "∞".to_owned(),
        percent if percent >= 1e6 => ">1e6 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// At most eleven characters.
fn short(amount: f64) -> String {
    let rounded = if amount.abs() >= 1e9 { format!("{amount:.2e}") } else { number((amount * 100.0).round() / 100.0) };
    if rounded.len() > 11 { format!("{amount:.3e}") } else { rounded }
}

fn state(resource: &Resource) -> String {
    if resource.learning_ms > 0 {
        format!("learning {} s", resource.learning_ms.div_ceil(1000))
    } else if !resource.unbounded && resource.held > resource.capacity {
        "over capacity".to_owned()
    } else if is_overridden(resource) {
        "overridden".to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn seen() -> Snapshot {
        let resource = |id: &str, wants, learning_ms| Resource {
            resource_id: id.into(),
            wants,
            capacity: 100.0,
            granted: 50.0,
            held: 50.0,
            holders: 3,
            learning_ms,
            ..Resource::default()
        };
        Snapshot {
            at: Instant::now(),
            severity: Severity::Warn,
            findings: vec!["peers: c is down".into(), "disks: \u{1b}[2J".into()],
            master: Some("a at 127.0.0.1:5100".into()),
            configuration: "limits.yaml, version 3".into(),
            resources: vec![resource("quiet", 10.0, 2500), resource("my\u{1b}[2Jsql", 12_345.678, 0)],
            opened: None,
        }
    }

    /// The screen as text, line by line.
    fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
        terminal.draw(|frame| draw(frame, view)).expect("it is memory");
        let buffer = terminal.backend().buffer();
        let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| line(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_verdict_is_first_and_ids_are_escaped() {
        let mut view = View::default();
        assert_eq!(drawn(&mut view, 80, 8)[0], "asking the cluster");
        view.learn(Ok(seen()));
        let lines = drawn(&mut view, 110, 8);
        assert_eq!(lines[0], "WARN  peers: c is down (and 1 more: leaseway check)");
        assert_eq!(lines[1], "2 resources · a at 127.0.0.1:5100 · limits.yaml, version 3");
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>(),
            ["RESOURCE", "PRESSURE", "WANTS", "CAPACITY", "GRANTED", "HELD", "CLIENTS", "STATE"]
        );
        assert!(lines[4].starts_with("my\\u001b[2Jsql ") && lines[4].contains("12346 %    12345.68"), "{}", lines[4]);
        assert!(lines[5].ends_with("learning 3 s"), "{}", lines[5]);
        assert_eq!(lines[7], "q quit  ↑↓ choose  Enter clients  s sort (by pressure)");
        view.learn(Err("no server\nanswers".into()));
        assert_eq!(drawn(&mut view, 110, 8)[2], "as of 0 s ago: no server\\nanswers");
    }

    #[test]
    fn columns_that_do_not_fit_are_omitted() {
        let mut view = View::default();
        view.learn(Ok(seen()));
        let headings =
            |view: &mut View, width| drawn(view, width, 8)[3].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(headings(&mut view, 60), "RESOURCE PRESSURE WANTS CAPACITY");
        assert_eq!(headings(&mut view, 30), "RESOURCE PRESSURE");
        assert_eq!(headings(&mut view, 12), "RESOURCE");
        for (width, height) in [(1, 1), (3, 2), (200, 3), (5, 50)] {
            drawn(&mut view, width, height);
        }
    }

    #[test]
    fn amounts_fit_their_columns() {
        for amount in [0.0, 1.0 / 3.0, 99_999_999.99, 999_999_999.99, 1e9, 1e300, -12_345_678.91] {
            assert!(short(amount).chars().count() <= 11, "{amount}: {}", short(amount));
        }
        assert_eq!((short(100.0 / 3.0), percent(f64::INFINITY)), ("33.33".to_owned(), "∞".to_owned()));
    }
}
