//! Tables that read well in a terminal and, pasted unchanged, are Markdown.

/// Renders `rows` below `head`. The first `left` columns are words, the others numbers.
pub(crate) fn render<const N: usize>(head: [&str; N], left: usize, rows: &[[String; N]]) -> String {
    let mut widths = head.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let mut line = String::from("|");
        for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            let cell = if column < left { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") };
            line.push_str(&cell);
        }
        line
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        if column < left { format!("{}|", "-".repeat(width + 2)) } else { format!("{}:|", "-".repeat(width + 1)) }
    });
    let mut lines = vec![line(head), format!("|{}", rule.collect::<String>())];
    lines.extend(rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
    lines.join("\n")
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
}
