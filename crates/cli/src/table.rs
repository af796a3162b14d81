//! Tables as ZFS prints them: two spaces between columns, numbers to the right, nothing after the
//! last column; or, for scripts, tabs and no headings.

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading.
    pub heading: String,
    /// Aligned to the right?
    pub right: bool,
}

/// Prints rows under columns.
#[must_use]
pub fn render(columns: &[Column], rows: &[Vec<String>], scripted: bool) -> String {
    if scripted {
        return rows.iter().map(|row| row.join("\t") + "\n").collect();
    }
    let width = |index: usize| {
        let cells = rows.iter().map(|row| row[index].chars().count());
        cells.chain([columns[index].heading.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (index, cell) in cells.enumerate() {
            if index > 0 {
                text.push_str("  ");
            }
            let padding = " ".repeat(widths[index].saturating_sub(cell.chars().count()));
            if columns[index].right {
                text.push_str(&padding);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                if index + 1 < columns.len() {
                    text.push_str(&padding);
                }
            }
        }
        text.push('\n');
        text
    };
    let mut text = line(&mut columns.iter().map(|c| c.heading.as_str()));
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// Control characters of a name that came from outside, made visible, so that no name can write on
/// the terminal.
#[must_use]
pub fn tame(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_the_last_column_has_no_tail() {
        let column = |heading: &str, right| Column { heading: heading.into(), right };
        let columns = [column("NAME", false), column("USED", true), column("MOUNTPOINT", false)];
        let rows = [
            vec!["tank".to_owned(), "25.9M".to_owned(), "/tank".to_owned()],
            vec!["tank/home".to_owned(), "1K".to_owned(), "/home".to_owned()],
        ];
        let expected = "NAME        USED  MOUNTPOINT\ntank       25.9M  /tank\ntank/home     1K  /home\n";
        assert_eq!(render(&columns, &rows, false), expected);
        assert_eq!(render(&columns, &rows, true), "tank\t25.9M\t/tank\ntank/home\t1K\t/home\n");
    }

    #[test]
    fn a_hostile_name_cannot_write_on_the_terminal() {
        assert_eq!(tame("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
    }
}
