//! The words of vLLM's presets, read by the parser of the real vLLM.

use crate::common;
use common::docker;
use common::e2e::{Live, VLLM_IMAGE, plimsoll};
use plimsoll::preset::SHIPPED;

/// Parses the arguments of `vllm serve` and starts nothing.
const PARSE: &str = "import sys, vllm.entrypoints.cli.serve as serve
parser = serve.make_arg_parser(serve.FlexibleArgumentParser(prog='vllm serve'))
asked = parser.parse_args(sys.argv[1:])
print('parsed', asked.model, asked.tensor_parallel_size, asked.max_model_len, asked.kv_cache_dtype)";

#[test]
fn the_words_of_a_preset_are_read_by_vllms_own_parser() {
    needs!(Vllm);
    let parse = |words: &[&str]| {
        let python = [
            "run",
            "--rm",
            "--entrypoint=python3",
            VLLM_IMAGE,
            "-c",
            PARSE,
        ];
        docker(&[&python[..], words].concat())
    };
    let presets = SHIPPED
        .iter()
        .filter(|(_, preset)| preset.engine.as_deref() == Some("vllm"));
    let mut held = 0;
    for (name, preset) in presets {
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
        let words = line[at + 1..].iter().map(String::as_str);
        let words: Vec<&str> = words
            .skip_while(|w| ["vllm", "serve"].contains(w))
            .collect();
        let parsed = parse(&words).expect("parsed");
        assert!(
            parsed.contains("parsed org/model 2 8192 fp8_e5m2"),
            "{name}: {words:?}: {parsed}"
        );
        held += 1;
    }
    assert!(held >= 3, "presets of vLLM: {held}");
    assert!(
        parse(&["--no-such-flag"]).is_err(),
        "it refuses what it does not know"
    );
}
