//! The real llama.cpp (Debian's package, on CPU) with a model of zeros: its figures against the file's own.

use crate::common;
use common::docker;
use common::e2e::{Engine, LLAMA_CPP_IMAGE, Results, codes, parts_sum_to_the_peak, run};
use serde_json::Value;
use std::path::Path;

const HIDDEN: u64 = 256;
const FEED_FORWARD: u64 = 512;
const LAYERS: u64 = 4;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const WORDS: u64 = 512;
const POSITIONS: u64 = 1024;

/// Writes GGUF, version 3 (ggml's docs/gguf.md).
#[derive(Default)]
struct Gguf {
    values: Vec<u8>,
    count: u64,
    tensors: Vec<(String, Vec<u64>)>,
}

impl Gguf {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// A value of a type by its number, as bytes.
    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        Gguf::text(&mut self.values, key);
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.count += 1;
    }

    fn number(&mut self, key: &str, value: u32) {
        self.value(key, 4, &value.to_le_bytes());
    }

    fn word(&mut self, key: &str, value: &str) {
        let mut bytes = Vec::new();
        Gguf::text(&mut bytes, value);
        self.value(key, 8, &bytes);
    }

    fn list(&mut self, key: &str, kind: u32, items: &[Vec<u8>]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((items.len() as u64).to_le_bytes());
        bytes.extend(items.concat());
        self.value(key, 9, &bytes);
    }

    fn tensor(&mut self, name: &str, shape: &[u64]) {
        self.tensors.push((name.to_owned(), shape.to_vec()));
    }

    /// Matrices are of 16 bits, vectors of 32.
    fn size(shape: &[u64]) -> u64 {
        shape.iter().product::<u64>() * if shape.len() > 1 { 2 } else { 4 }
    }

    /// Bytes of all tensors.
    fn weights(&self) -> u64 {
        self.tensors
            .iter()
            .map(|(_, shape)| Gguf::size(shape))
            .sum()
    }

    fn write(&self, path: &Path) {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend(self.count.to_le_bytes());
        file.extend(&self.values);
        let mut offset = 0u64;
        for (name, shape) in &self.tensors {
            Gguf::text(&mut file, name);
            file.extend((shape.len() as u32).to_le_bytes());
            file.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
            file.extend(u32::from(shape.len() > 1).to_le_bytes());
            file.extend(offset.to_le_bytes());
            offset += Gguf::size(shape).next_multiple_of(32);
        }
        file.resize(file.len().next_multiple_of(32) + offset as usize, 0);
        std::fs::write(path, file).expect("model");
    }
}

/// A llama of four layers with a vocabulary of bytes.
fn tiny_llama() -> Gguf {
    let mut file = Gguf::default();
    file.word("general.architecture", "llama");
    for (key, value) in [
        ("context_length", POSITIONS as u32),
        ("embedding_length", HIDDEN as u32),
        ("block_count", LAYERS as u32),
        ("feed_forward_length", FEED_FORWARD as u32),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("rope.dimension_count", HIDDEN as u32 / HEADS),
        ("vocab_size", WORDS as u32),
    ] {
        file.number(&format!("llama.{key}"), value);
    }
    let epsilon = 1e-5f32.to_le_bytes();
    file.value("llama.attention.layer_norm_rms_epsilon", 6, &epsilon);
    file.word("tokenizer.ggml.model", "llama");
    let word = |n: u64| match n {
        0 => "<unk>".to_owned(),
        1 => "<s>".to_owned(),
        2 => "</s>".to_owned(),
        n if n < 259 => format!("<0x{:02X}>", n - 3),
        n => format!("t{n}"),
    };
    let words = (0..WORDS).map(|n| {
        let mut bytes = Vec::new();
        Gguf::text(&mut bytes, &word(n));
        bytes
    });
    let kinds = (0..WORDS).map(|n| match n {
        0 => 2i32,
        1 | 2 => 3,
        n if n < 259 => 6,
        _ => 1,
    });
    let scores = vec![0f32.to_le_bytes().to_vec(); WORDS as usize];
    file.list("tokenizer.ggml.tokens", 8, &words.collect::<Vec<_>>());
    file.list("tokenizer.ggml.scores", 6, &scores);
    let kinds = kinds.map(|kind| kind.to_le_bytes().to_vec());
    file.list("tokenizer.ggml.token_type", 5, &kinds.collect::<Vec<_>>());
    for (key, id) in [("unknown", 0), ("bos", 1), ("eos", 2)] {
        file.number(&format!("tokenizer.ggml.{key}_token_id"), id);
    }
    let of_kv = HIDDEN / u64::from(HEADS) * u64::from(KV_HEADS);
    file.tensor("token_embd.weight", &[HIDDEN, WORDS]);
    file.tensor("output_norm.weight", &[HIDDEN]);
    file.tensor("output.weight", &[HIDDEN, WORDS]);
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attn_norm", &[HIDDEN][..]),
            ("ffn_norm", &[HIDDEN]),
            ("attn_q", &[HIDDEN, HIDDEN]),
            ("attn_k", &[HIDDEN, of_kv]),
            ("attn_v", &[HIDDEN, of_kv]),
            ("attn_output", &[HIDDEN, HIDDEN]),
            ("ffn_gate", &[HIDDEN, FEED_FORWARD]),
            ("ffn_up", &[HIDDEN, FEED_FORWARD]),
            ("ffn_down", &[FEED_FORWARD, HIDDEN]),
        ] {
            file.tensor(&format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    file
}

#[track_caller]
fn part(document: &Value, component: &str) -> f64 {
    let parts = document["memory_breakdown"]["components"].as_array();
    let mut parts = parts.expect("components").iter();
    let part = parts.find(|p| p["component"] == component);
    part.and_then(|p| p["bytes"].as_f64())
        .unwrap_or_else(|| panic!("no {component}: {document:#}"))
}

/// What its log has is exact to its two decimals of MiB.
const DECIMALS: f64 = 0.01 * 1_048_576.0;

#[test]
fn its_weights_and_its_cache_are_those_of_the_model() {
    needs!(LlamaCpp);
    let folder = tempfile::tempdir().expect("tempdir");
    let model = tiny_llama();
    model.write(&folder.path().join("tiny.gguf"));
    let results = Results::new();
    let volume = format!("{}:/models:ro", folder.path().display());
    let ended = run(&[
        "run",
        "--preset=llama-cpp-cuda",
        "--gpus=none",
        "--image",
        LLAMA_CPP_IMAGE,
        "--volume",
        &volume,
        "--model=/models/tiny.gguf",
        "--max-model-len=1024",
        "--kv-cache-dtype=q8_0",
        "--bench=builtin",
        "--input-len=32",
        "--output-len=16",
        "--num-prompts=8",
        &results.arg(),
    ]);
    ended.expect(0);
    let document = results.document();
    parts_sum_to_the_peak(&document);
    let weights = part(&document, "model_weights");
    assert!(
        (weights - model.weights() as f64).abs() <= DECIMALS,
        "{weights}"
    );
    // K and V of each position; q8_0 keeps 32 values in 34 bytes.
    let of_kv = HIDDEN / u64::from(HEADS) * u64::from(KV_HEADS);
    let cache = (2 * LAYERS * of_kv * POSITIONS * 34 / 32) as f64;
    let kv = part(&document, "kv_cache");
    assert!((kv - cache).abs() <= DECIMALS, "{kv} and not {cache}");
    // It loads in less than 0.1 s: on a busy host the first sample comes later, which the profile says.
    let mut codes = codes(&document);
    codes.retain(|code| *code != "start_not_sampled");
    assert_eq!(codes, [""; 0], "{}", document["findings"]);
}

#[test]
fn its_deaths_are_explained() {
    needs!(LlamaCpp);
    for (args, cause, word) in [
        (&["--no-such-flag"][..], "bad_flag", "`--no-such-flag`"),
        (
            &["-m", "/models/none.gguf"],
            "model_not_found_or_gated",
            "/models/none.gguf",
        ),
    ] {
        let dead = Engine::run("death-llama", &[], LLAMA_CPP_IMAGE, args);
        docker(&["wait", &dead.id]).expect("its end");
        let answer = run(&["why", &dead.name, "--json"]).expect(0).stdout;
        let found: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(found["cause"], cause, "{found:#}");
        assert!(answer.contains(word), "{found:#}");
    }
}
