//! Documents of earlier schemas, as a table of the summary.

use super::figures::gib_cell;
use crate::compare::subject::Subject;
use crate::report::content::{ContentBlock, TableCell};
use crate::report::material::StoredDocument;
use crate::report::tables::{TableBuilder, word_or_reason};
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
    let subjects: Vec<Subject> = (documents.iter())
        .map(|stored| Subject::of_older(&stored.document, &stored.name))
        .collect();
    let mut table = TableBuilder::of_items(documents.iter().zip(&subjects))
        .words("document", "document", |(stored, _)| &stored.name)
        .cells("model", "model", |(_, subject)| {
            word_or_reason(subject.who.model.as_ref(), "the document does not have it")
        });
    for (key, title) in keys {
        table = table.figures(title, &format!("{key}_gib"), |(_, subject)| {
            match subject.figure_bytes(key) {
                Ok(bytes) if bytes.abs() < 1e6 * GIB => gib_cell(bytes as i64),
                Ok(_) => TableCell::missing_cell("no device has so much"),
                Err(why) => TableCell::missing_cell(why),
            }
        });
    }
    let caption = "Documents of earlier schemas: their figures as they say them, without witnesses";
    ContentBlock::Table(table.grid("older", caption))
}
