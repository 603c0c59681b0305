//! Documents of earlier schemas, as a table of the summary.

use super::figures::gib_cell;
use crate::compare::subject::Subject;
use crate::report::content::{ContentBlock, Grid, TableCell, number_column, text_column as column};
use crate::report::material::StoredDocument;
use crate::units::GIB;

/// Documents of earlier schemas: the figures that all of them have.
pub(super) fn older_documents_table(documents: &[StoredDocument]) -> ContentBlock {
    let keys = [
        ("total", "peak, GiB"),
        ("model_weights", "weights, GiB"),
        ("kv_cache", "KV cache, GiB"),
        ("activations", "activations, GiB"),
        ("framework_overhead", "overhead, GiB"),
    ];
    let mut columns = vec![column("document", "document"), column("model", "model")];
    columns.extend(keys.map(|(key, title)| number_column(title, &format!("{key}_gib"))));
    let rows = documents.iter().map(|stored| {
        let subject = Subject::of_older(&stored.document, &stored.name);
        let mut row = vec![TableCell::text_cell(&stored.name)];
        row.push(match &subject.who.model {
            Some(model) => TableCell::text_cell(model),
            None => TableCell::missing_cell("the document does not have it"),
        });
        row.extend(keys.map(|(key, _)| match subject.figure_bytes(key) {
            Ok(bytes) if bytes.abs() < 1e6 * GIB => gib_cell(bytes as i64),
            Ok(_) => TableCell::missing_cell("no device has so much"),
            Err(why) => TableCell::missing_cell(why),
        }));
        row
    });
    ContentBlock::Table(Grid {
        id: "older".into(),
        caption: "Documents of earlier schemas: their figures as they say them, without witnesses"
            .into(),
        columns,
        rows: rows.collect(),
    })
}
