//! Model, compute settings and shards; and the body of `GET /info`.

use crate::engine::facts::{Fact, FactValue, Severity};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, number, number_after};
use crate::engine::log::said::{text_after_any, text_after_sign};
use crate::engine::log::sheet::Sheet;
use serde_json::{Map, Value};

/// More shards than any host has GPUs; a higher rank is invalid.
const MOST_SHARDS: f64 = 4096.0;

/// The shards seen.
#[derive(Default)]
pub struct Shards {
    /// The highest rank, with the line of it.
    highest: Option<(u64, Fact)>,
    /// Whether rank 0 was started.
    zero_started: bool,
    /// Whether a shard is ready, or printed a line that only a started one prints.
    zero_ready: bool,
}

impl Shards {
    /// Whether shards were started.
    pub fn started(&self) -> bool {
        self.zero_started
    }

    /// Whether the line starts the first shard again.
    pub fn starts_again(&self, text: &str) -> bool {
        self.zero_ready && starting(text) == Some(0)
    }

    /// Reads one line.
    pub fn read(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let text = line.text;
        if let Some(n) = text_after_sign(text, "Sharding model on ").and_then(whole) {
            sheet.count("tensor_parallel_size", n, line, "Sharding model on ");
        }
        self.zero_started |= starting(text) == Some(0);
        if let Some(rest) = text_after_sign(text, "Shard ready in ") {
            if let Some(rank) = rank(rest) {
                self.zero_ready |= rank == 0;
                if self.highest.as_ref().is_none_or(|(h, _)| rank > *h) {
                    let fact = Fact {
                        value: FactValue::Int(rank as i64 + 1),
                        quote: vec![line.quote("Shard ready in ")],
                        at_ns: line.at,
                    };
                    self.highest = Some((rank, fact));
                }
            }
        }
        // The web server and the warm-up come when every shard is ready, and so does what the
        // warm-up finds: a log may lack the lines before.
        let after_all = [
            "Starting Webserver",
            "Warming up model",
            "KV-cache blocks: ",
            "Setting max batch total tokens to ",
        ];
        let all_ready = text_after_any(text, &after_all).is_some() || text.contains("warmup{");
        if all_ready && sheet.get("tensor_parallel_size").is_none() {
            if let Some((rank, fact)) = &self.highest {
                let quote = fact.quote.first().cloned().unwrap_or_default();
                sheet.conclude("tensor_parallel_size", fact.clone());
                if *rank > 0 {
                    sheet.finding(
                        "parallel_size_inferred",
                        Severity::Info,
                        "tensor_parallel_size was concluded from the highest shard that was ready",
                        &Line {
                            text: &quote,
                            ..*line
                        },
                        "rank=",
                    );
                }
            }
        }
    }
}

fn starting(text: &str) -> Option<u64> {
    rank(text_after_sign(text, "Starting shard")?)
}

fn rank(text: &str) -> Option<u64> {
    let n = number_after(text, "rank=")?;
    (n.whole && (0.0..MOST_SHARDS).contains(&n.value)).then_some(n.value as u64)
}

fn whole(text: &str) -> Option<u64> {
    let (n, _) = number(text)?;
    (n.whole && (1.0..=MOST_SHARDS).contains(&n.value)).then_some(n.value as u64)
}

/// Messages before a fact's value, the fact's key, and whether a known value is kept.
pub const NAMES: &[(&str, &str, bool)] = &[
    ("Using scheduler ", "scheduler", false),
    ("Using backend ", "scheduler", false),
    ("Docker label: ", "docker_label", false),
    // The launcher's arguments name it better.
    ("no pipeline tag found for model ", "model", true),
    ("Unkown compute for card ", "gpu_card", false),
    ("Unknown compute for card ", "gpu_card", false),
];

/// Messages that say whether something is on.
pub const SWITCHES: &[(&str, &str)] = &[
    ("Using prefix caching = ", "prefix_caching"),
    ("Using prefill chunking = ", "prefill_chunking"),
    ("Using experimental prefill chunking = ", "prefill_chunking"),
];

/// Reads one line.
pub fn read(line: &Line<'_>, sheet: &mut Sheet) {
    attention(line, sheet);
    let text = line.text;
    for (needle, key, first) in NAMES {
        if let Some(word) =
            text_after_sign(text, needle).and_then(|rest| rest.split_whitespace().next())
        {
            if *first {
                sheet.set_first(key, FactValue::Text(word.to_owned()), line, needle);
            } else {
                sheet.text(key, word, line, needle);
            }
        }
    }
    if let Some(config) = text_after_sign(text, "Using config Some(") {
        let end = config.find(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(family) = end.map(|end| &config[..end]).filter(|f| !f.is_empty()) {
            sheet.text("model_family", family, line, "Using config ");
        }
    }
    if text_after_sign(text, "PyTorch TunableOp").is_some_and(|rest| rest.contains("is enabled")) {
        sheet.flag("tunable_op", true, line, "TunableOp");
    }
}

fn attention(line: &Line<'_>, sheet: &mut Sheet) {
    let text = line.text;
    if let Some(rest) = text_after_sign(text, "Using Attention = ") {
        backend(rest, line, sheet);
    }
    if let Some(rest) = text_after_sign(text, "Using attention ") {
        backend(rest, line, sheet);
        if let Some(on) = after(rest, "Prefix caching ").and_then(switch) {
            sheet.flag("prefix_caching", on, line, "Prefix caching ");
        }
    }
    for (needle, key) in SWITCHES {
        if let Some(on) = text_after_sign(text, needle).and_then(switch) {
            sheet.flag(key, on, line, needle);
        }
    }
    if text_after_sign(text, "Disabling prefix caching because ").is_some() {
        sheet.flag("prefix_caching", false, line, "Disabling prefix caching");
    }
    if let Some(rest) = text_after_sign(text, "ROCm: using Flash Attention 2 ") {
        for (word, name) in [
            ("Composable Kernel", "composable_kernel"),
            ("Triton", "triton"),
        ] {
            if rest.starts_with(word) {
                sheet.text("rocm_flash_attention", name, line, "ROCm: using");
            }
        }
    }
}

fn backend(rest: &str, line: &Line<'_>, sheet: &mut Sheet) {
    let name = rest.split_whitespace().next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.len() < 40 && name.chars().all(plain) {
        sheet.text("attention_backend", name, line, "sing ");
    }
}

/// `True`, `0`, `false`, ….
fn switch(text: &str) -> Option<bool> {
    match text.split_whitespace().next()? {
        "1" | "true" | "True" => Some(true),
        "0" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Reads the body of `GET /info`, if the line is one.
pub fn info(line: &Line<'_>, sheet: &mut Sheet) -> bool {
    if !line.text.starts_with('{') || !line.text.contains("\"model_id\"") {
        return false;
    }
    let Ok(info) = serde_json::from_str::<Map<String, Value>>(line.text) else {
        return false;
    };
    if !is_info(&info) {
        return false;
    }
    for (name, value) in &info {
        let needle = format!("\"{name}\"");
        let key = info_key(name);
        match value {
            Value::String(v) if name == "version" => sheet.version(v),
            Value::String(v) => sheet.text(key, v, line, &needle),
            Value::Number(n) => match (n.as_u64(), n.as_f64()) {
                (Some(count), _) => sheet.count(key, count, line, &needle),
                (None, Some(figure)) => sheet.figure(key, figure, line, &needle),
                _ => {}
            },
            _ => {}
        }
    }
    true
}

/// Whether a JSON object is TGI's description of itself: others have a `model_id` too.
pub fn is_info(info: &Map<String, Value>) -> bool {
    info.get("model_id").is_some_and(Value::is_string)
        && [
            "max_best_of",
            "docker_label",
            "max_client_batch_size",
            "validation_workers",
            "router",
        ]
        .iter()
        .any(|key| info.contains_key(*key))
}

/// The key of a fact for a key of `/info`, which changed its words at 2.1.
pub fn info_key(name: &str) -> &str {
    match name {
        "model_id" => "model",
        "model_dtype" => "dtype",
        "model_device_type" => "device",
        "max_input_length" => "max_input_tokens",
        other => other,
    }
}
