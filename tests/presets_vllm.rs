//! The words of vLLM's presets, read by the parser of the real vLLM.

use crate::common;
use common::docker;
use common::e2e::{Live, plimsoll, vllm_image};
use plimsoll::preset::{Preset, SHIPPED};

/// Parses lists of arguments of `vllm serve`, and starts nothing.
const PARSE: &str = "import json, sys, vllm.entrypoints.cli.serve as serve
parser = serve.make_arg_parser(serve.FlexibleArgumentParser(prog='vllm serve'))
for words in json.loads(sys.argv[1]):
    try:
        a = parser.parse_args(words)
    except SystemExit:
        print('refused')
        continue
    print('read', a.model_tag or a.model, a.tensor_parallel_size, a.max_model_len, a.kv_cache_dtype)";

#[test]
fn the_words_of_a_preset_are_read_by_vllms_own_parser() {
    needs!(Vllm);
    let is_vllm = |preset: &Preset| preset.engine.as_deref() == Some("vllm");
    let presets = SHIPPED.iter().filter(|(_, preset)| is_vllm(preset));
    let words = presets.map(|(name, preset)| {
        let asked = [
            "run",
            "--dry-run",
            "--as=docker-run",
            "--preset",
            name,
            "--model=org/model",
            "--tp=2",
            "--gpu-memory-utilization=0.5",
            "--max-model-len=8192",
            "--dtype=bfloat16",
            "--quantization=fp8",
            "--kv-cache-dtype=fp8_e5m2",
            "--enforce-eager",
        ];
        let line = Live::start(plimsoll(&asked)).end().expect(0).stdout;
        let line = shlex::split(&line.replace("\\\n", " ")).expect("a shell's line");
        let image = preset.image.as_deref().expect("an image");
        let at = line.iter().position(|w| w == image).expect("its image");
        let words = line[at + 1..].iter().cloned();
        words.skip_while(|w| w == "vllm" || w == "serve").collect()
    });
    let mut words: Vec<Vec<String>> = words.collect();
    assert!(words.len() >= 3, "{words:?}");
    words.push(vec!["--no-such-flag".into()]);
    let json = serde_json::to_string(&words).expect("JSON");
    let python = [
        "run",
        "--rm",
        "--entrypoint=python3",
        vllm_image(),
        "-c",
        PARSE,
        &json,
    ];
    let parsed = docker(&python).expect("parsed");
    let read = parsed
        .lines()
        .filter(|l| l.starts_with("read ") || *l == "refused");
    let mut expected = vec!["read org/model 2 8192 fp8_e5m2"; words.len() - 1];
    expected.push("refused");
    assert_eq!(read.collect::<Vec<_>>(), expected, "{words:?}: {parsed}");
}
