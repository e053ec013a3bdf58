//! Tables that read well in a terminal and, pasted unchanged, are Markdown.

/// As many characters as a table has that is made to fit a terminal.
const WIDTH: usize = 130;

/// Renders `rows` below `head`. The first `left` columns are words, the others numbers.
pub(crate) fn render<const N: usize>(head: [&str; N], left: usize, rows: &[[String; N]]) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
    lines(&head, left, &rows)
}

fn lines<R: AsRef<[T]>, T: AsRef<str>>(head: &[&str], left: usize, rows: &[R]) -> String {
    let widths: Vec<usize> = (0..head.len()).map(|column| width(head, rows, column)).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from("|");
        for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
            let cell = if column < left { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") };
            line.push_str(&cell);
        }
        line
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        if column < left { format!("{}|", "-".repeat(width + 2)) } else { format!("{}:|", "-".repeat(width + 1)) }
    });
    let mut lines = vec![line(&mut head.iter().copied()), format!("|{}", rule.collect::<String>())];
    lines.extend(rows.iter().map(|row| line(&mut row.as_ref().iter().map(AsRef::as_ref))));
    lines.join("\n")
}

fn width<R: AsRef<[T]>, T: AsRef<str>>(head: &[&str], rows: &[R], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.as_ref().get(column)).map(AsRef::as_ref);
    cells.chain([head[column]]).map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// What a table is made from that has more columns than a terminal.
pub(crate) struct Columns<'a, const N: usize> {
    pub(crate) head: [&'a str; N],
    /// So many of the first are words.
    pub(crate) left: usize,
    /// So many of the first are always shown, then these as far as they fit.
    pub(crate) always: usize,
    pub(crate) then: &'a [usize],
}

impl<const N: usize> Columns<'_, N> {
    /// A single row becomes a line for each column. Of several the columns that fit are shown, and the others named.
    pub(crate) fn fitted(&self, rows: &[[String; N]]) -> String {
        if let [row] = rows {
            let pairs: Vec<_> = self.head.iter().zip(row).map(|(title, cell)| [*title, cell.as_str()]).collect();
            return lines(&["what", "value"], 2, &pairs);
        }
        let mut chosen: Vec<usize> = (0..self.always).collect();
        let room = |column: usize| width(&self.head, rows, column) + 3;
        let mut taken: usize = chosen.iter().copied().map(room).sum();
        for &column in self.then {
            if taken + room(column) < WIDTH {
                taken += room(column);
                chosen.push(column);
            }
        }
        chosen.sort_unstable();
        let head: Vec<&str> = chosen.iter().map(|&column| self.head[column]).collect();
        let shown: Vec<Vec<&str>> =
            rows.iter().map(|row| chosen.iter().map(|&column| row[column].as_str()).collect()).collect();
        let table = lines(&head, self.left, &shown);
        let others: Vec<&str> =
            (0..N).filter(|column| !chosen.contains(column)).map(|column| self.head[column]).collect();
        if others.is_empty() {
            table
        } else {
            format!("{table}\n\nwith --wide, or in --json, also: {}", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["A".into(), "12".into()], ["A/B".into(), "1.500".into()]];
        let expected = "\
| who | µs    |
|-----|------:|
| A   |    12 |
| A/B | 1.500 |";
        // The head follows its column.
        assert_eq!(render(["who", "µs"], 1, &rows), expected.replace("µs    ", "   µs "));
    }

    const COLUMNS: Columns<'_, 4> =
        Columns { head: ["who", "µs", "long", "last"], left: 1, always: 1, then: &[3, 2, 1] };

    #[test]
    fn one_row_is_shown_as_lines() {
        let rows = [["A".into(), "12".into(), "x".repeat(200), "1".into()]];
        let shown = COLUMNS.fitted(&rows);
        assert!(shown.starts_with("| what | value"), "{shown}");
        assert!(shown.lines().count() == 6 && shown.contains("| µs   | 12 "), "{shown}");
    }

    #[test]
    fn of_several_rows_the_columns_that_fit_are_shown_and_the_others_named() {
        let row = |who: &str| [who.into(), "12".into(), "x".repeat(200), "1".into()];
        let shown = COLUMNS.fitted(&[row("A"), row("B")]);
        assert_eq!(shown.lines().next(), Some("| who | µs | last |"));
        assert!(shown.ends_with("also: long"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
    }
}
