//! Tables as CSV, harmless to spreadsheets. Unknown is empty, never 0.

use super::RenderError;

/// A table: its head, then its rows.
///
/// # Errors
/// What the writer says; it writes to memory.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> Result<Vec<u8>, RenderError> {
    let failed = |e: Box<dyn std::error::Error + Send + Sync>| RenderError {
        format: "csv",
        source: e,
    };
    let mut table = ::csv::Writer::from_writer(Vec::new());
    table.write_record(head).map_err(|e| failed(e.into()))?;
    for row in rows {
        let cells = row.iter().map(|cell| harmless(cell.clone()));
        table.write_record(cells).map_err(|e| failed(e.into()))?;
    }
    table.into_inner().map_err(|e| failed(e.to_string().into()))
}

/// Words that a spreadsheet would take for a formula are written so that it takes them for words.
pub fn harmless(words: String) -> String {
    let formula = words.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let number = words.parse::<f64>().is_ok_and(f64::is_finite);
    match formula && !number {
        true => format!("'{words}"),
        false => words,
    }
}

/// A figure, or an empty cell.
pub fn cell(figure: Option<impl ToString>) -> String {
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
        let text = table(&["a", "b", "c", "d", "e"], &rows).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a,b,c,d,e\n'=1+1,'@x,-0.5,'+cmd|'/c'!A0,plain\n");
    }
}
