//! `Args { model_id: "m", num_shard: Some(2), … }`: the launcher's arguments, on one line (up to
//! 2.2) or one to a line (since 2.3).

use crate::engine::facts::{EngineStep, FactKey, FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::heads::text_after_sign;
use crate::engine::log::sheet::Sheet;
use crate::engine::log::text::bare;

/// Lines after which an open block is given up: its end was lost.
const MOST_LINES: u32 = 500;
/// Bytes of one field that goes over several lines.
const LONGEST_FIELD: usize = 4096;

/// Type of a field.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A name, as it is.
    Text,
    /// A variant's name, which the command line spells in small letters: `BitsandbytesNf4`.
    Variant,
    /// A count or a figure.
    Number,
    /// `true` or `false`.
    Flag,
    /// `[1, 2]`.
    List,
}

/// Fields that are facts, with the key of each.
pub const FIELDS: &[(&str, FactKey, Kind)] = &[
    ("model_id", key::model, Kind::Text),
    ("revision", key::revision, Kind::Text),
    ("dtype", key::dtype, Kind::Variant),
    ("quantize", key::quantization, Kind::Variant),
    ("kv_cache_dtype", key::kv_cache_dtype, Kind::Variant),
    ("sharded", key::sharded, Kind::Flag),
    ("num_shard", key::tensor_parallel_size, Kind::Number),
    ("speculate", key::speculate, Kind::Number),
    (
        "max_concurrent_requests",
        key::max_concurrent_requests,
        Kind::Number,
    ),
    ("max_input_tokens", key::max_input_tokens, Kind::Number),
    ("max_input_length", key::max_input_tokens, Kind::Number),
    ("max_total_tokens", key::max_total_tokens, Kind::Number),
    (
        "max_batch_prefill_tokens",
        key::max_batch_prefill_tokens,
        Kind::Number,
    ),
    (
        "max_batch_total_tokens",
        key::max_batch_total_tokens_requested,
        Kind::Number,
    ),
    ("max_batch_size", key::max_batch_size, Kind::Number),
    ("cuda_graphs", key::cuda_graph_sizes_configured, Kind::List),
    (
        "cuda_memory_fraction",
        key::cuda_memory_fraction,
        Kind::Number,
    ),
    ("rope_scaling", key::rope_scaling, Kind::Variant),
    ("rope_factor", key::rope_factor, Kind::Number),
    ("trust_remote_code", key::trust_remote_code, Kind::Flag),
    (
        "disable_custom_kernels",
        key::disable_custom_kernels,
        Kind::Flag,
    ),
    ("enable_cuda_graphs", key::enable_cuda_graphs, Kind::Flag),
    ("port", key::port, Kind::Number),
    ("prometheus_port", key::prometheus_port, Kind::Number),
];

/// Whether the line begins the launcher's arguments.
pub fn begins(text: &str) -> bool {
    text_after_sign(text, "Args {").is_some()
}

/// A block that is read.
#[derive(Default)]
pub struct Block {
    open: bool,
    lines: u32,
    /// A field to be continued.
    field: String,
}

impl Block {
    /// Whether more lines of it may come.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Reads one line; whether it was of the arguments.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) -> bool {
        if let Some(rest) = text_after_sign(line.text, "Args {") {
            sheet.step(EngineStep::Started, line, "Args {");
            *self = Block::default();
            self.open = rest.trim().is_empty();
            for field in complete_fields(rest) {
                fact(field, line, sheet);
            }
            return true;
        }
        if !self.open {
            return false;
        }
        self.lines += 1;
        let text = bare(line.text);
        if text == "}" && self.field.is_empty() || self.lines > MOST_LINES {
            self.open = false;
            return text == "}";
        }
        if !self.belongs(text) {
            return false;
        }
        self.field.push_str(text);
        if self.field.len() > LONGEST_FIELD {
            self.field.clear();
        } else if let Some(field) = complete_fields(&self.field).first() {
            fact(field, line, sheet);
            self.field.clear();
        }
        true
    }

    /// Whether the line can be the next of the block: `name: …` where a field begins, else a value
    /// or a closing bracket.
    fn belongs(&self, text: &str) -> bool {
        let ends = text.ends_with([',', '(', '[', '{']);
        let begins = text.split_once(": ").is_some_and(|(name, _)| is_name(name));
        let value = !begins
            && text.starts_with(|c: char| {
                c == '"'
                    || c == '-'
                    || c.is_ascii_digit()
                    || c.is_ascii_uppercase()
                    || "([{)]}".contains(c)
            })
            && (!text.contains(' ') || text.starts_with('"'));
        ends && if self.field.is_empty() { begins } else { value }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The complete `name: value` pieces of `text`: each ends with a comma or the closing brace.
fn complete_fields(text: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    let (mut start, mut depth, mut quoted, mut escaped) = (0, 0_i32, false, false);
    for (at, c) in text.char_indices() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            '"' => quoted = true,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                fields.push(text[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    fields
}

fn fact(field: &str, line: &Line<'_>, sheet: &mut Sheet) {
    let Some((name, value)) = field.split_once(": ") else {
        return;
    };
    let Some((_, key, kind)) = FIELDS.iter().find(|(n, _, _)| *n == name.trim()) else {
        return;
    };
    // `Some(2)`, and `Some(2,)` where it went over several lines.
    let value = value.trim();
    let value = match value.strip_prefix("Some(") {
        Some(inside) => inside.trim_end_matches(')').trim_end_matches([',', ' ']),
        None => value,
    };
    if value == "None" || value.is_empty() {
        return;
    }
    let value = match kind {
        Kind::Text => value
            .strip_prefix('"')
            .and_then(|v| v.strip_suffix('"'))
            .map(|v| FactValue::Text(v.to_owned())),
        Kind::Variant => Some(FactValue::Text(variant(value.trim_matches('"')))),
        Kind::Number => match (value.parse::<i64>(), value.parse::<f64>()) {
            (Ok(count), _) => Some(FactValue::Int(count)),
            (_, Ok(figure)) if figure.is_finite() => Some(FactValue::Float(figure)),
            _ => None,
        },
        Kind::Flag => value.parse().ok().map(FactValue::Bool),
        Kind::List => list(value),
    };
    if let Some(value) = value {
        // Only the field is quoted: its neighbours hold keys of the server.
        let quoted = Line {
            text: field,
            ..*line
        };
        sheet.set(*key, value, &quoted, name);
    }
}

fn list(value: &str) -> Option<FactValue> {
    let inside = value.trim_matches(|c| "[](), ".contains(c));
    let sizes: Option<Vec<f64>> = inside
        .split(',')
        .filter(|w| !w.trim().is_empty())
        .map(|w| w.trim().parse::<u32>().ok().map(f64::from))
        .collect();
    sizes.filter(|s| !s.is_empty()).map(FactValue::List)
}

/// A variant as the command line spells it.
fn variant(name: &str) -> String {
    match name {
        "BFloat16" => "bfloat16".to_owned(),
        "Fp8e4m3fn" => "fp8_e4m3fn".to_owned(),
        "Fp8e5m2" => "fp8_e5m2".to_owned(),
        _ => {
            let mut spelled = String::new();
            for c in name.chars() {
                if c.is_ascii_uppercase() && !spelled.is_empty() {
                    spelled.push('-');
                }
                spelled.push(c.to_ascii_lowercase());
            }
            spelled
        }
    }
}
