//! The state of the view, and how keys change it. Pure.

use std::cmp::Ordering;

use leaseway_proto::status::{Holder, Resource};

use super::source::Snapshot;

/// Rows that Page Up and Page Down move by.
pub(super) const PAGE: usize = 10;

/// A key, by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    End,
    Up(usize),
    Down(usize),
    Open,
    Back,
    Sort,
}

/// The consequence of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Query the cluster now: another resource is shown.
    Look,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    #[default]
    Pressure,
    Wants,
    Name,
}

#[derive(Default)]
pub(super) struct View {
    /// The newest snapshot.
    pub(super) seen: Option<Snapshot>,
    /// Why there is no newer snapshot.
    pub(super) error: Option<String>,
    pub(super) order: Order,
    /// The resource whose holders are shown.
    opened: Option<String>,
    /// The selected row in the list of resources or of holders.
    pub(super) row: usize,
    /// The resource that was selected when another was opened.
    chosen: Option<String>,
}

/// The ratio of wants to capacity.
pub(super) fn pressure(resource: &Resource) -> f64 {
    if resource.wants <= 0.0 || resource.unbounded { 0.0 } else { resource.wants / resource.capacity.max(0.0) }
}

impl View {
    pub(super) fn resource(&self) -> Option<&str> {
        self.opened.as_deref()
    }

    /// The holders of the opened resource; `None` until they are known.
    pub(super) fn holders(&self) -> Option<&Resource> {
        let opened = self.seen.as_ref()?.opened.as_ref()?;
        (Some(opened.resource_id.as_str()) == self.resource()).then_some(opened)
    }

    pub(super) fn resources(&self) -> &[Resource] {
        self.seen.as_ref().map_or(&[], |seen| &seen.resources)
    }

    /// Applies an answer. The selection follows its resource to another row.
    pub(super) fn learn(&mut self, seen: Result<Snapshot, String>) {
        match seen {
            Ok(seen) => {
                self.note_choice();
                (self.seen, self.error) = (Some(seen), None);
                self.sort();
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn rows(&self) -> usize {
        match self.opened {
            Some(_) => self.holders().map_or(0, |resource| resource.holder.len()),
            None => self.resources().len(),
        }
    }

    fn note_choice(&mut self) {
        if self.opened.is_none() {
            self.chosen = self.resources().get(self.row).map(|resource| resource.resource_id.clone());
        }
    }

    fn sort(&mut self) {
        let order = self.order;
        if let Some(seen) = &mut self.seen {
            seen.resources.sort_by(|one, other| compare(order, one, other));
            if let Some(opened) = &mut seen.opened {
                let wanted = |one: &Holder, other: &Holder| other.wants.total_cmp(&one.wants);
                opened.holder.sort_by(|one, other| wanted(one, other).then_with(|| one.id.cmp(&other.id)));
            }
        }
        if self.opened.is_none() {
            let is_chosen = |resource: &Resource| Some(&resource.resource_id) == self.chosen.as_ref();
            self.row = self.resources().iter().position(is_chosen).unwrap_or(self.row);
        }
        self.row = self.row.min(self.rows().saturating_sub(1));
    }

    pub(super) fn press(&mut self, key: Key) -> Next {
        match key {
            Key::End => return Next::End,
            Key::Up(rows) => self.row = self.row.saturating_sub(rows),
            Key::Down(rows) => self.row = self.row.saturating_add(rows).min(self.rows().saturating_sub(1)),
            Key::Sort => {
                self.note_choice();
                self.order = match self.order {
                    Order::Pressure => Order::Wants,
                    Order::Wants => Order::Name,
                    Order::Name => Order::Pressure,
                };
                self.sort();
            }
            Key::Open if self.opened.is_none() && self.row < self.rows() => {
                self.note_choice();
                self.opened = self.chosen.clone();
                self.row = 0;
                return Next::Look;
            }
            Key::Back if self.opened.is_some() => {
                self.opened = None;
                self.sort();
                return Next::Look;
            }
            Key::Open | Key::Back => {}
        }
        Next::Nothing
    }
}

fn compare(order: Order, one: &Resource, other: &Resource) -> Ordering {
    let first = match order {
        Order::Pressure => pressure(other).total_cmp(&pressure(one)),
        Order::Wants => other.wants.total_cmp(&one.wants),
        Order::Name => Ordering::Equal,
    };
    first.then_with(|| one.resource_id.cmp(&other.resource_id))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use leaseway_server::checkup::Severity;

    pub(in crate::inspect::top) fn snapshot(resources: &[(&str, f64, f64)]) -> Snapshot {
        let resource = |(id, wants, capacity): &(&str, f64, f64)| Resource {
            resource_id: (*id).to_owned(),
            wants: *wants,
            capacity: *capacity,
            ..Resource::default()
        };
        Snapshot {
            at: Instant::now(),
            severity: Severity::Ok,
            findings: Vec::new(),
            master: None,
            configuration: String::new(),
            resources: resources.iter().map(resource).collect(),
            opened: None,
        }
    }

    fn order(view: &View) -> String {
        view.resources().iter().map(|resource| &*resource.resource_id).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn resources_are_sorted_by_pressure_until_a_key_changes_the_order() {
        let mut view = View::default();
        view.learn(Ok(snapshot(&[("a", 10.0, 100.0), ("b", 300.0, 100.0), ("c", 5.0, 0.0), ("d", 0.0, 0.0)])));
        assert_eq!(order(&view), "c b a d");
        view.press(Key::Sort);
        assert_eq!(order(&view), "b a c d");
        view.press(Key::Sort);
        assert_eq!(order(&view), "a b c d");
    }

    #[test]
    fn the_selection_follows_its_resource() {
        let mut view = View::default();
        view.learn(Ok(snapshot(&[("a", 10.0, 100.0), ("b", 300.0, 100.0)])));
        assert_eq!(view.press(Key::Down(1)), Next::Nothing);
        view.learn(Ok(snapshot(&[("a", 900.0, 100.0), ("b", 300.0, 100.0)])));
        assert_eq!((order(&view).as_str(), view.row), ("a b", 0));
        assert_eq!(view.press(Key::Open), Next::Look);
        assert_eq!(view.resource(), Some("a"));
        assert!(view.holders().is_none(), "they are asked for");
        view.learn(Err("no server answers".into()));
        assert_eq!(order(&view), "a b", "what was seen last is still shown");
        assert_eq!(view.press(Key::Open), Next::Nothing);
        assert_eq!(view.press(Key::Back), Next::Look);
        view.press(Key::Down(usize::MAX));
        assert_eq!(view.row, 1);
        view.learn(Ok(snapshot(&[])));
        assert_eq!((view.row, view.press(Key::Open)), (0, Next::Nothing));
    }
}
