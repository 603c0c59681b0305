//! Tables as CSV, harmless to spreadsheets. Unknown is empty, never 0.

use serde_json::Value;

/// A table: its head, then its rows.
pub fn write_table(head: &[&str], rows: &[Vec<String>]) -> Vec<u8> {
    let mut table = csv_line(head.iter().map(|name| (*name).to_owned()));
    for row in rows {
        table.push_str(&csv_line(
            row.iter().map(|cell| harmless_field(cell.clone())),
        ));
    }
    table.into_bytes()
}

/// A table of objects: `columns` names the fields of each row, in order, and `head=field` one under another name.
pub fn write_fields(columns: &str, rows: impl IntoIterator<Item = Value>) -> Vec<u8> {
    let named = columns.split_whitespace();
    let named = named.map(|column| column.split_once('=').unwrap_or((column, column)));
    let (head, fields): (Vec<&str>, Vec<&str>) = named.unzip();
    let rows = rows.into_iter();
    let rows = rows.map(|row| {
        fields
            .iter()
            .map(|field| field_text(&row[*field]))
            .collect()
    });
    write_table(&head, &rows.collect::<Vec<_>>())
}

/// A figure is written as Rust does, without a decimal that is none.
fn field_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => match value.as_f64().filter(|_| value.is_f64()) {
            Some(figure) => figure.to_string(),
            None => value.to_string(),
        },
    }
}

/// One line. A field is quoted where it holds what separates fields, also where that is `;` or a
/// tab, as in the spreadsheets of countries that write `1,5`.
pub fn csv_line(fields: impl Iterator<Item = String>) -> String {
    let quoted = |field: String| {
        if field.contains([',', '"']) || field.contains(ENDS) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    };
    let fields: Vec<String> = fields.map(quoted).collect();
    match fields.as_slice() {
        // Nothing at all would be no line.
        [only] if only.is_empty() => "\"\"\n".to_owned(),
        fields => format!("{}\n", fields.join(",")),
    }
}

/// What ends a field in some spreadsheet.
const ENDS: [char; 4] = [';', '\t', '\r', '\n'];

/// Words that a spreadsheet would take for a formula are written so that it takes them for words:
/// at their beginning, and where a field begins for one that takes `;` or a tab for its end.
pub fn harmless_field(words: String) -> String {
    if words.parse::<f64>().is_ok_and(f64::is_finite) {
        return words;
    }
    let mut field = String::with_capacity(words.len());
    if words.starts_with(['\t', '\r', '\n']) {
        field.push('\'');
    }
    let mut begins = true;
    for (at, c) in words.char_indices() {
        // A quote before it, which such a reader takes away, hides nothing.
        let first = || words[at..].trim_start_matches(['"', ' ']).chars().next();
        if begins && first().is_some_and(|c| "=+-@".contains(c)) {
            field.push('\'');
        }
        begins = ENDS.contains(&c);
        field.push(c);
    }
    field
}

/// A figure, or an empty cell.
pub fn figure_cell(figure: Option<impl ToString>) -> String {
    figure.map_or_else(String::new, |f| f.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_words_and_figures_stay_figures() {
        let rows = [["=1+1", "@x", "-0.5", "+cmd|'/c'!A0", "plain"]
            .map(str::to_owned)
            .to_vec()];
        let text = write_table(&["a", "b", "c", "d", "e"], &rows);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a,b,c,d,e\n'=1+1,'@x,-0.5,'+cmd|'/c'!A0,plain\n");
    }

    #[test]
    fn a_semicolon_or_a_tab_begins_no_formula() {
        let rows = [["x;=1+1", "y\t@z", "a;\"=1", "a; b=c", "a,\"b\"", "-0.5"]
            .map(str::to_owned)
            .to_vec()];
        let text = write_table(&["a", "b", "c", "d", "e", "f"], &rows);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "a,b,c,d,e,f\n\"x;'=1+1\",\"y\t'@z\",\"a;'\"\"=1\",\"a; b=c\",\"a,\"\"b\"\"\",-0.5\n"
        );
        // As a spreadsheet reads it that takes `;` for the end of a field.
        let fields = text.split([';', '\t', '\n']);
        let formulas: Vec<&str> = fields.filter(|f| f.starts_with(['=', '@'])).collect();
        assert_eq!(formulas, [""; 0]);
    }
}
