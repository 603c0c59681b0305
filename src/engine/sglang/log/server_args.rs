//! The line with a server's arguments: `server_args=ServerArgs(model_path='…', …)`, in the newest
//! releases `server_args={…}`.

use crate::engine::facts::{FactKey, FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::sheet::Sheet;

/// Arguments that the log and `/server_info` show, with the facts that they set. A selection, as
/// both also contain API keys.
pub const ARGUMENTS: &[(&str, FactKey)] = &[
    ("dtype", key::dtype),
    ("quantization", key::quantization),
    ("kv_cache_dtype", key::kv_cache_dtype),
    ("tp_size", key::tensor_parallel_size),
    ("pp_size", key::pipeline_parallel_size),
    ("dp_size", key::data_parallel_size),
    ("ep_size", key::expert_parallel_size),
    ("mem_fraction_static", key::mem_fraction_static),
    ("attention_backend", key::attention_backend),
    ("max_running_requests", key::max_running_requests),
    ("chunked_prefill_size", key::chunked_prefill_size),
    ("max_prefill_tokens", key::max_prefill_tokens),
    ("cuda_graph_max_bs", key::cuda_graph_max_bs),
    ("disable_cuda_graph", key::enforce_eager),
    ("speculative_algorithm", key::speculative_algorithm),
    ("enable_dp_attention", key::enable_dp_attention),
];

/// Arguments that only the log is read for.
const LOGGED: &[(&str, FactKey)] = &[
    ("model_path", key::model),
    ("served_model_name", key::served_model_name),
    ("nnodes", key::nnodes),
    ("node_rank", key::node_rank),
    ("context_length", key::context_length),
    ("max_total_tokens", key::max_total_tokens_asked),
    ("page_size", key::page_size),
    ("cpu_offload_gb", key::cpu_offload_gb),
    ("device", key::device),
];

/// Writes the arguments on the sheet. Skips `auto` and `None`, which leave the value open.
pub fn read(rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
    for (name, key) in ARGUMENTS.iter().chain(LOGGED) {
        let Some((value, needle)) = value_of(rest, name) else {
            continue;
        };
        match value {
            "None" | "null" | "auto" | "" => {}
            "True" | "true" => sheet.flag(*key, true, line, &needle),
            "False" | "false" => sheet.flag(*key, false, line, &needle),
            value => {
                let fact = match (value.parse::<i64>(), value.parse::<f64>()) {
                    (Ok(n), _) => FactValue::Int(n),
                    (_, Ok(v)) if v.is_finite() => FactValue::Float(v),
                    _ => FactValue::Text(value.to_owned()),
                };
                sheet.set(*key, fact, line, &needle);
            }
        }
    }
}

/// The value of `name='v'`, `name=3`, `'name': 'v'` or `"name": 3`, where something ends it, and
/// how it is spelled.
fn value_of<'a>(text: &'a str, name: &str) -> Option<(&'a str, String)> {
    for spelled in [
        format!("{name}="),
        format!("'{name}': "),
        format!("\"{name}\": "),
        format!("\"{name}\":"),
    ] {
        for (at, _) in text.match_indices(&spelled).take(4) {
            let part = |c: char| c.is_alphanumeric() || c == '_';
            // `draft_model_path=` is another's.
            if text[..at].chars().next_back().is_some_and(part) {
                continue;
            }
            let value = &text[at + spelled.len()..];
            let value = match value.chars().next() {
                Some(mark @ ('\'' | '"')) => value[1..].split_once(mark)?.0,
                _ => value.split_once([',', ')', '}'])?.0.trim(),
            };
            return Some((value, spelled));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Vec<(String, String)> {
        let mut sheet = Sheet::default();
        read(
            text,
            &Line {
                text,
                ..Line::default()
            },
            &mut sheet,
        );
        let report = sheet.report("sglang");
        let shown = report.facts.iter();
        shown
            .map(|(k, f)| (k.to_string(), f.value.to_string()))
            .collect()
    }

    #[test]
    fn both_forms() {
        for text in [
            "ServerArgs(model_path='org/m', draft_model_path='d', tp_size=4, mem_fraction_static=0.81, dtype='auto', kv_cache_dtype='fp8_e5m2', quantization=None, disable_cuda_graph=False, cuda_graph_bs=[1, 2])",
            "{'model_path': 'org/m', 'tp_size': 4, 'mem_fraction_static': 0.81, 'kv_cache_dtype': 'fp8_e5m2', 'disable_cuda_graph': False}",
            r#"{"model_path":"org/m","tp_size":4,"mem_fraction_static":0.81,"kv_cache_dtype":"fp8_e5m2","disable_cuda_graph":false}"#,
        ] {
            let expected = [
                ("enforce_eager", "false"),
                ("kv_cache_dtype", "fp8_e5m2"),
                ("mem_fraction_static", "0.81"),
                ("model", "org/m"),
                ("tensor_parallel_size", "4"),
            ];
            let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(facts(text), expected, "{text}");
        }
        // A value without an end may have been cut off.
        assert_eq!(facts("ServerArgs(model_path='org/m"), []);
        assert_eq!(facts("ServerArgs(tp_size=1"), []);
    }
}
