//! Documents of earlier schemas, as a table of the summary.

use super::figures::{gib_cell, numbers, words as column};
use crate::compare::subject::Subject;
use crate::report::content::{Block, Cell, Grid};
use crate::report::material::Stored;
use crate::units::GIB;

/// Documents of earlier schemas: the figures that all of them have.
pub(super) fn table(documents: &[Stored]) -> Block {
    let keys = [
        ("total", "peak, GiB"),
        ("model_weights", "weights, GiB"),
        ("kv_cache", "KV cache, GiB"),
        ("activations", "activations, GiB"),
        ("framework_overhead", "overhead, GiB"),
    ];
    let mut columns = vec![column("document", "document"), column("model", "model")];
    columns.extend(keys.map(|(key, title)| numbers(title, &format!("{key}_gib"))));
    let rows = documents.iter().map(|stored| {
        let subject = Subject::of_older(&stored.document, &stored.name);
        let mut row = vec![Cell::text(&stored.name)];
        row.push(match &subject.who.model {
            Some(model) => Cell::text(model),
            None => Cell::missing("the document does not have it"),
        });
        row.extend(keys.map(|(key, _)| match subject.bytes(key) {
            Ok(bytes) if bytes.abs() < 1e6 * GIB => gib_cell(bytes as i64),
            Ok(_) => Cell::missing("no device has so much"),
            Err(why) => Cell::missing(why),
        }));
        row
    });
    Block::Table(Grid {
        id: "older".into(),
        caption: "Documents of earlier schemas: their figures as they say them, without witnesses"
            .into(),
        columns,
        rows: rows.collect(),
    })
}
