//! Markdown tables that are readable in a terminal.

/// The width of a table that fits a terminal, in characters.
const WIDTH: usize = 130;

/// The first `left` columns are text, the others numbers.
pub(crate) fn render<R: AsRef<[T]>, T: AsRef<str>>(head: &[&str], left: usize, rows: &[R]) -> String {
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

/// Like [`render`], for tables that may be too wide: a single row becomes one line per column; of several rows only the
/// columns that fit are shown, and the others are named.
pub(crate) fn fitted(head: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    if let [row] = rows {
        let pairs: Vec<_> = head.iter().zip(row).map(|(title, cell)| [*title, cell.as_str()]).collect();
        return render(&["what", "value"], 2, &pairs);
    }
    let mut taken = 1;
    let (shown, others): (Vec<usize>, Vec<usize>) = (0..head.len()).partition(|&column| {
        let room = width(head, rows, column) + 3;
        let fits = taken + room <= WIDTH;
        taken += if fits { room } else { 0 };
        fits
    });
    let titles = |columns: &[usize]| columns.iter().map(|&column| head[column]).collect::<Vec<_>>();
    let of = |row: &Vec<String>| shown.iter().map(|&column| row[column].clone()).collect::<Vec<_>>();
    let table = render(&titles(&shown), left, &rows.iter().map(of).collect::<Vec<_>>());
    match titles(&others).join(", ") {
        none if none.is_empty() => table,
        others => format!("{table}\n\nwith --wide, or in --json, also: {others}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let expected = "\
| row | ms    |
|-----|------:|
| A   |    12 |
| A/B | 1.500 |";
        // The head is aligned like its column.
        assert_eq!(render(&["row", "ms"], 1, &[["A", "12"], ["A/B", "1.500"]]), expected.replace("ms    ", "   ms "));
    }

    #[test]
    fn one_row_is_shown_as_lines_and_of_several_the_columns_that_fit() {
        let head = ["row", "ms", "long", "last"];
        let row = |name: &str| vec![name.into(), "12".into(), "x".repeat(200), "1".into()];
        let shown = fitted(&head, 1, &[row("A")]);
        assert!(shown.starts_with("| what | value") && shown.contains("| ms   | 12 "), "{shown}");
        let shown = fitted(&head, 1, &[row("A"), row("B")]);
        assert_eq!(shown.lines().next(), Some("| row | ms | last |"));
        assert!(shown.ends_with("also: long"), "{shown}");
    }
}
