//! JSON Schema of the sweep file, for editors.

use super::super::cell::BenchWord;
use super::keys::{self, KeyKind};
use serde_json::{Map, Value, json};

/// The schema, draft 2020-12. It holds less than the reader checks: nothing across keys.
pub fn sweep_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plimsoll sweep file",
        "type": "object",
        "required": ["models"],
        "additionalProperties": false,
        "properties": properties(keys::TOP),
        "$defs": {
            "entry": {
                "type": "object",
                "additionalProperties": false,
                "properties": properties(keys::ENTRY),
            },
            "variable": {
                "type": "string",
                "pattern": "\\$\\{",
                "description": "A text with a variable: ${NAME} or ${NAME:-default}.",
            },
        },
    })
}

fn properties(keys: &[keys::KeySpec]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        for name in key.aliases.iter().chain([&key.name]) {
            let mut schema = schema_of(key.kind);
            if let Some(map) = schema.as_object_mut() {
                let about = if *name == key.name {
                    key.about.to_owned()
                } else {
                    format!("{} The same as `{}`.", key.about, key.name)
                };
                map.insert("description".into(), about.into());
            }
            properties.insert((*name).to_owned(), schema);
        }
    }
    properties.into()
}

fn variable_schema() -> Value {
    json!({"$ref": "#/$defs/variable"})
}

/// A number of this kind, as a number or as a text that holds one.
fn number_schema(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "string", "pattern": "^ *[0-9.+eE]+ *$"}, variable_schema()]})
}

fn count_schema(from: u64) -> Value {
    number_schema(json!({"type": "number", "minimum": from}))
}

fn above_zero() -> Value {
    number_schema(json!({"type": "number", "exclusiveMinimum": 0}))
}

fn text_schema() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn flag_schema() -> Value {
    json!({"anyOf": [{"type": "boolean"}, variable_schema()]})
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// One value or a list; a text with commas is one too.
fn one_or_more(schema: Value) -> Value {
    let list = json!({"type": "array", "minItems": 1, "uniqueItems": false, "items": schema});
    let split = json!({"type": "string", "pattern": ","});
    json!({"anyOf": [schema, list, split, {"type": "null"}]})
}

fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn schema_of(kind: KeyKind) -> Value {
    let scalar = || json!({"type": ["string", "number", "boolean", "null"]});
    let words = || json!({"type": "array", "items": {"type": ["string", "number"]}});
    match kind {
        KeyKind::Texts => one_or_more(text_schema()),
        KeyKind::TextsOrNull => one_or_more(or_null(text_schema())),
        KeyKind::Counts => one_or_more(count_schema(1)),
        KeyKind::CountsOrNull => one_or_more(or_null(count_schema(1))),
        KeyKind::Shares => one_or_more(or_null(number_schema(
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        ))),
        KeyKind::Rates => one_or_more(or_null(above_zero())),
        KeyKind::Flags => one_or_more(or_null(flag_schema())),
        KeyKind::Text => or_null(text_schema()),
        KeyKind::Size => or_null(json!({"type": ["string", "number"]})),
        KeyKind::Time => or_null(json!({"type": ["string", "number"]})),
        KeyKind::Count => or_null(count_schema(1)),
        KeyKind::CountFromZero => or_null(count_schema(0)),
        KeyKind::Number => or_null(above_zero()),
        KeyKind::Flag => or_null(flag_schema()),
        KeyKind::Gpus => or_null(json!({"anyOf": [{"type": ["string", "integer"]}, words()]})),
        KeyKind::Bench => {
            let names: Vec<&str> = BenchWord::ALL.iter().map(|(n, _)| *n).collect();
            or_null(json!({"anyOf": [{"enum": names}, variable_schema()]}))
        }
        KeyKind::Environment => or_null(map(scalar())),
        KeyKind::Volumes => {
            or_null(json!({"anyOf": [text_schema(), {"type": "array", "items": text_schema()}]}))
        }
        KeyKind::Arguments => or_null(map(
            json!({"anyOf": [scalar(), {"type": "array", "minItems": 1, "items": scalar()}]}),
        )),
        KeyKind::Words => or_null(json!({"anyOf": [text_schema(), words()]})),
        KeyKind::Zip => or_null(json!({"type": "array", "items": {"anyOf": [
            text_schema(),
            {"type": "array", "minItems": 2, "items": text_schema()},
        ]}})),
        KeyKind::Include | KeyKind::Exclude => {
            or_null(json!({"type": "array", "items": {"type": "object", "minProperties": 1}}))
        }
        KeyKind::Entry => or_null(json!({"$ref": "#/$defs/entry"})),
        KeyKind::Entries => {
            json!({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/entry"}})
        }
        KeyKind::Version => json!({"enum": ["1", 1, null]}),
    }
}
