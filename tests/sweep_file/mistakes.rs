//! Each mistake that a sweep file can hold, and what is told of it.

use super::*;

/// A file, what is told, and words of the hints.
#[rustfmt::skip]
const FILES: &[(&str, &str, &str)] = &[
    ("", "1:1: there is nothing in it", ""),
    ("# only words\n", "2:1: there is nothing in it", ""),
    ("null", "1:1: there is nothing in it", ""),
    ("- a\n- b\n", "1:1: a sweep file must be a map of keys, not a list", ""),
    ("hello", "1:1: a sweep file must be a map of keys, not `hello`", ""),
    ("name: x\n", "1:1: `models` is missing", "config init"),
    ("modles: []\n", "1:1: unknown key `modles` of a sweep file", "did you mean `models`?"),
    ("models: []\n", "1:9: `models` is an empty list", ""),
    ("models: {a: b}\n", "1:9: `models` must be a list of maps, not a map", ""),
    ("models:\n  - m\n", "2:5: an entry of `models` must be a map of keys, not `m`", ""),
    ("models:\n  - {model_id: m, batch_sises: [1]}", "2:19: unknown key `batch_sises` of an entry of `models`", "did you mean `batch_sizes`?"),
    ("models:\n  - {model_id: m, qqq: [1]}", "2:19: unknown key `qqq` of an entry of `models`", ""),
    ("models:\n  - model_id: m\n    image: i\n    memory: 1\n", "4:13: `memory` must be at least 6MiB, as Docker asks, not `1`", "did you mean `1GiB`?"),
    ("models:\n  - {model: m}", "2:6: unknown key `model` of an entry of `models`", "did you mean `model_id`?"),
    ("defaults:\n  tensor-parallel-sise: 2\nmodels: [{}]", "2:3: unknown key `tensor-parallel-sise` of `defaults`", "`tensor_parallel_size`"),
    ("defaults: 3\nmodels: [{}]", "1:11: `defaults` must be a map of keys, not `3`", ""),
    ("name: a\nname: b\n", "2:1: `name` is a duplicate (the other is at 1:1)", ""),
    ("models:\n  - batch_size: 1\n    batch_sizes: [2]\n", "3:5: `batch_sizes` is given twice, by two of its names (the other is at 2:5)", ""),
    ("schema_version: 2\nmodels: [{}]", "1:17: `schema_version` must be 1, not `2`", ""),
    ("name: a/b\nmodels: [{}]", "1:7: `name` must be letters, digits, `-`, `_` and `.`, as it names a folder, not `a/b`", ""),
    ("timeout: soon\nmodels: [{}]", "1:10: `timeout` must be a length of time above 0, as 90s, 30m or 2h, not `soon`", ""),
    ("timeout: 0\nmodels: [{}]", "1:10: `timeout` must be a length of time above 0, as 90s, 30m or 2h, not `0`", ""),
    ("models:\n\t- a\n", "2:1: a tab: YAML is indented with spaces", ""),
    ("models: [1, 2\n", "2:1: not YAML: while parsing a flow sequence, expected ',' or ']'", ""),
    ("a: \"x\nb: 1\n", "1:4: not YAML: invalid indentation in quoted scalar", "deeper than the key"),
    ("defaults: {seed: 1,\nrepeats: 2}", "2:1: not YAML: invalid indentation in flow construct", "deeper than the key"),
    ("models: *nowhere\n", "1:9: an alias (`*name`) of which there is no anchor (`&name`) before it", ""),
    ("models: !mine []\n", "1:9: a YAML tag (`!word`) is not supported here", ""),
    ("models:\n- a: 1\n---\nmodels: []\n", "3:1: a second document begins, and only one is read", ""),
    ("a: \u{0}\n", "1:4: a character (U+0000) that is in no text file", ""),
    ("? [a]\n: b\n", "1:3: a key must be a word", ""),
];

/// Lines of an entry that runs in a container; the entry begins at 2:5, the lines at 4:5.
#[rustfmt::skip]
const ENTRIES: &[(&str, &str, &str)] = &[
    ("batch_sizes: []", "4:18: `batch_sizes` is an empty list", "null"),
    ("batch_sizes: [1, 8, 1]", "4:25: `1` stands in `batch_sizes` twice (the other is at 4:19)", ""),
    ("batch_sizes: [10, 1e1]", "4:23: `10.0` stands in `batch_sizes` twice (the other is at 4:19)", ""),
    ("quantization: [awq, awq]", "4:25: `awq` stands in `quantization` twice (the other is at 4:20)", ""),
    ("input_lengths: [0]", "4:21: `input_lengths` must be a whole number from 1 to 10000000, not `0`", ""),
    ("input_len: -5", "4:16: `input_lengths` must be a whole number from 1 to 10000000, not `-5`", ""),
    ("input_len: 1.5", "4:16: `input_lengths` must be a whole number from 1 to 10000000, not `1.5`", ""),
    ("output_lengths:\n  - 1\n  - many", "6:9: `output_lengths` must be a whole number from 1 to 10000000, not `many`", ""),
    ("output_lengths: {a: 1}", "4:21: `output_lengths` must be a value or a list of values, not a map", ""),
    ("batch_sizes: [null]", "4:19: `batch_sizes` must be a whole number from 1 to 4294967295, not `null`", ""),
    ("batch_sizes: [[1]]", "4:19: `batch_sizes` must be a whole number from 1 to 4294967295, not a list", ""),
    ("bench: latency\nnum_prompts: 10", "5:5: the latency bench repeats its batch: `num_prompts` changes nothing", "num_iters"),
    ("bench: throughput\nbatch_sizes: [1, 8]\nnum_prompts: 10", "6:5: the throughput bench sends all requests at once: `batch_sizes` changes nothing where `num_prompts` is set", "one of the two"),
    ("bench: builtin\nbatch_sizes: [1, 64]\nnum_prompts: 4", "6:5: batch 64 keeps 64 requests at once, and there are 4 of them", "follow from the batch"),
    ("dtype: 16", "4:12: `dtype` must be text, not `16`", "quotes"),
    ("dtype: ''", "4:12: `dtype` must be text, not an empty text", ""),
    ("enforce_eager: yes", "4:20: `enforce_eager` must be true or false, not `yes`", ""),
    ("gpu_memory_utilization: 90", "4:29: `gpu_memory_utilization` must be a number above 0 and at most 1, not `90`", ""),
    ("max_model_len: 0", "4:20: `max_model_len` must be a whole number, 1 or more, not `0`", ""),
    ("model_params: 7B", "4:19: `model_params` must be a number above 0, not `7B`", ""),
    ("num_layers: [1]", "4:17: `num_layers` must be a number above 0, not a list", ""),
    ("repeats: 1001", "4:14: `repeats` must be a whole number from 1 to 1000, not `1001`", ""),
    ("bench: latensy", "4:12: `bench` must be one of auto, latency, throughput, serve, builtin, not `latensy`", "did you mean `latency`?"),
    ("bench: latency\nrequest_rate: 2", "5:5: the latency bench has no request rate: it sends no requests to a server", "bench: serve"),
    ("bench: throughput\nrequest_rates: [2]", "5:5: the throughput bench has no request rate: it sends no requests to a server", ""),
    ("request_rates: [inf]", "4:21: `request_rates` must be a number above 0, not `inf`", ""),
    ("engine: vlm", "4:13: no engine `vlm` is known", "vllm"),
    ("image: i", "3:5: an entry runs in a container that is there (`container_name`) or in one that is started for it (`image` or `preset`), not in both (the other is at 4:5)", ""),
    ("gpus: all", "4:5: `gpus` is for containers that plimsoll starts, but this entry names an existing one", ""),
    ("engine_args: [a]", "4:18: `engine_args` must be a map, not a list", ""),
    ("engine_args: {'a b': 1}", "4:19: `a b` can be no argument's name", ""),
    ("engine_args: {a: {b: 1}}", "4:22: `a` must be a value or a list of values, not a map", ""),
    ("engine_args: {a: [[1]]}", "4:23: `a` must be text, a number, true, false or null, not a list", ""),
    ("engine_args: {a: [true, true]}", "4:29: `true` stands in `a` twice (the other is at 4:23)", ""),
    ("engine_args: {a: 1, --a: 2}", "4:25: `--a` is given twice (the other is at 4:19)", ""),
    ("engine_args: {max-model-len: 2}", "4:19: `--max-model-len` has a key of its own: `max_model_len`", ""),
    ("engine_args: {model: other}", "4:19: `--model` has a key of its own: `model_id`", ""),
    ("engine_args: {model_path: other}", "4:19: `--model_path` has a key of its own: `model_id`", ""),
    ("engine_args: {-m: other}", "4:19: `-m` has a key of its own: `model_id`", ""),
    ("engine_args: {port: 1}", "4:19: `--port` is not given here: plimsoll says where an engine listens", ""),
    ("engine_args: {-tp: 2}", "4:19: `-tp` has a key of its own: `tensor_parallel_size`", ""),
    ("engine_args: {tensor-parallel: 2}", "4:19: `--tensor-parallel` has a key of its own: `tensor_parallel_size`", ""),
    ("engine_args: {no-enforce-eager: true}", "4:19: `--no-enforce-eager` has a key of its own: `enforce_eager`", ""),
    ("engine_args: {max_num_seqs: 1, max-num-seqs: 2}", "4:36: `--max-num-seqs` is given twice (the other is at 4:19)", ""),
    ("engine_args: {x: true, no-x: true}", "4:28: `--no-x` is given twice (the other is at 4:19)", ""),
    ("engine_args: {x: --model=other}", "4:22: `--model` has a key of its own: `model_id`", ""),
    ("include: [{engine_args: {model: other}}]", "4:30: `--model` has a key of its own: `model_id`", ""),
    ("engine_args: {x: true}\ninclude: [{engine_args: {no-x: true}}]", "5:15: `--no-x` and `engine_args.x` say the same thing twice", ""),
    ("extra_engine_args: -q fp8 -tp 2", "4:24: `-q` has a key of its own: `quantization`", ""),
    ("extra_engine_args: [--host=h]", "4:24: `--host` is not given here: plimsoll says where an engine listens", ""),
    ("engine_args: {max_num_seqs: [1, 2]}\nextra_engine_args: --max-num-seqs 3", "5:24: `--max_num_seqs` stands in `engine_args` as well", "each time"),
    ("extra_engine_args: [--dtype=half]", "4:24: `--dtype` has a key of its own: `dtype`", ""),
    ("extra_engine_args: --a 'b", "4:24: `extra_engine_args`: a quote is left open", ""),
    ("extra_engine_args: []", "4:24: `extra_engine_args` is an empty list", ""),
    ("zip: 7", "4:10: `zip` must be a list of lists of keys, as in [[input_lengths, output_lengths]], not `7`", ""),
    ("zip: [[dtype]]", "4:11: `zip` wants two lists or more that go side by side", ""),
    ("zip: [[dtype, dtipe]]", "4:19: `dtipe` is not a list that can go side by side", "did you mean `dtype`?"),
    ("zip: [[dtype, seed]]", "4:19: `seed` is not a list that can go side by side", ""),
    ("zip: [[dtype, batch_size, dtype]]", "4:31: `dtype` is in `zip` twice (the other is at 4:12)", ""),
    ("dtype: [a, b]\nzip: [[dtype, quantization]]", "5:19: `zip` names `quantization`, which this entry does not have", ""),
    ("input_lengths: [1, 2]\noutput_lengths: [3]\nzip: [[input_lengths, output_lengths]]", "6:27: `input_lengths` has 2 values and `output_lengths` 1 value: lists that go side by side must be of one length", ""),
    ("input_lengths: [1, 1]\noutput_lengths: [3, 3]\nzip: [[input_lengths, output_lengths]]", "6:12: values 1 and 2 of these lists are the same", ""),
    ("exclude: {batch_size: 1}", "4:14: `exclude` must be a list of maps, not a map", ""),
    ("exclude: [{}]", "4:15: `exclude`: an empty map", ""),
    ("exclude: [{batch_size: 64}]", "4:15: this matches no cell", ""),
    ("exclude: [{batch_sise: 1}]", "4:16: unknown key `batch_sise` of `exclude`", "did you mean"),
    ("exclude: [{seed: 1}]", "4:16: `seed` is the same for all cells of an entry", ""),
    ("exclude: [{image: i}]", "4:16: `image` is not where this entry runs", ""),
    ("exclude: [{batch_size: 1}]", "1:1: no cell is left", ""),
    ("exclude: [{batch_size: 1, batch_sizes: 1}]", "4:31: `batch_sizes` is a duplicate", ""),
    ("batch_sizes: [1, 2]\ninclude: [{input_len: 9}]", "5:15: this cell does not say which of the 2 values in `batch_sizes`", ""),
    ("include: [{batch_size: [2, 3]}]", "4:28: `batch_size` must be one value in `include`, not a list", ""),
    ("include: [{batch_size: 1}]", "2:5: the cell `in 256 out 128 batch 1` of `m` is there twice", ""),
    ("bench: latency\ninclude: [{request_rate: 1}]", "5:30: the latency bench has no request rate: it sends no requests to a server", ""),
    ("dtype: ${NOT_SET}", "4:12: the environment variable `NOT_SET` is not set", "${NOT_SET:-"),
    ("dtype: ${NOT-SET}", "4:12: a variable is written `${NAME}` or `${NAME:-default}`", "$$"),
    ("dtype: ${A", "4:12: `${` is not closed by `}`", "$$"),
    ("dtype: '${A:-${B}}'", "4:12: the default of `A` holds another variable", ""),
];

/// Lines of an entry that starts an image.
#[rustfmt::skip]
const IMAGES: &[(&str, &str, &str)] = &[
    ("shm_size: lots", "4:15: `shm_size` must be a size such as 16GiB, not `lots`", ""),
    ("gpus: -1", "4:11: `gpus` must be none, all, a count, or a list of ids, not `-1`", ""),
    ("gpus: ','", "4:11: `gpus` must be none, all, a count, or a list of ids, not `,`", ""),
    ("env: [A=b]", "4:10: `env` must be a map, not a list", ""),
    ("env: {A: 1.10}", "4:14: `A` must be text, not `1.1`", ""),
    ("env: {A=B: x}", "4:11: `A=B` is not a valid variable name", ""),
    ("volumes: [/m]", "4:15: `volumes` must be SOURCE:TARGET or SOURCE:TARGET:ro, not `/m`", ""),
    ("hf_cache: hf", "4:15: `hf_cache` must be the full path of a folder, not `hf`", ""),
    ("preset: nope", "4:13: no preset `nope`", ""),
];

/// What differs, all of it at once.
fn compare(table: &[(&str, &str, &str)], file: impl Fn(&str) -> String) {
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(lines, message, hint)| {
            let (said, hints) = told(&file(lines));
            let right = said == *message && hints.contains(hint);
            (!right).then(|| {
                format!("{lines}\n  said:   {said} [{hints}]\n  wanted: {message} [{hint}]")
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mistake_is_told_with_its_place() {
    compare(FILES, str::to_owned);
    compare(ENTRIES, entry);
    compare(IMAGES, image);
}

#[test]
fn an_entry_says_what_and_where() {
    let nowhere = told("models:\n  - {model_id: m}\n");
    assert_eq!(nowhere.0, "2:5: this entry does not say where it runs");
    assert!(nowhere.1.contains("container_name: NAME"));
    let nobody = told("models:\n  - {container_name: c}\n");
    assert_eq!(nobody.0, "2:5: this entry names no model");
}

#[test]
fn the_same_cell_in_two_entries_is_told_with_both() {
    let text = "models:\n  - {model_id: m, container_name: c, batch_sizes: [1, 2]}\n  \
                - {model_id: x, container_name: c}\n  - {model_id: m, container_name: c, batch_size: 2, num_layers: 3}\n";
    assert_eq!(
        told(text).0,
        "4:5: the cell `in 256 out 128 batch 2` of `m` is there twice (the other is at 2:5)"
    );
}

#[test]
fn no_value_of_a_secret_is_told() {
    let var = |name: &str| match name {
        "HF_TOKEN" => Some("hush-hush-hush".to_owned()),
        "MY_PASSWORD" => Some("abc".to_owned()),
        "PLAIN" => Some("seen".to_owned()),
        _ => None,
    };
    for lines in [
        "batch_size: ${HF_TOKEN}",
        "batch_sizes: ['1${MY_PASSWORD}']",
        "engine: ${HF_TOKEN}",
        "extra_engine_args: -q${HF_TOKEN} --model=${HF_TOKEN}",
        "engine_args: {x: '-q${HF_TOKEN}'}",
        "engine: ${MY_PASSWORD}",
        "bench: x${MY_PASSWORD}",
        "zip: [['${HF_TOKEN}', dtype]]",
        "dtype: ${HF_TOKEN}\nbatch_size: [1, 1]",
        "dtype: ['${MY_PASSWORD}', '${MY_PASSWORD}']",
    ] {
        let (message, hints) = told_with(&entry(lines), &var);
        let all = format!("{message} {hints}");
        assert!(
            !all.contains("hush") && !all.contains("abc"),
            "{lines}: {all}"
        );
    }
    let twice = "models: [{model_id: '${MY_PASSWORD}', container_name: c}, {model_id: abc, container_name: c}]";
    assert!(!told_with(twice, &var).0.contains("abc"));
    // It would be told by a plan and kept with the results: only the variable and the key are.
    for (lines, key) in [
        ("dtype: ${HF_TOKEN}", "dtype"),
        ("batch_sizes: ['1${MY_PASSWORD}']", "batch_sizes"),
        ("include: [{quantization: 'a${HF_TOKEN}'}]", "quantization"),
        ("hf_cache: /a${HF_TOKEN}", "hf_cache"),
    ] {
        let (message, hints) = told_with(&entry(lines), &var);
        assert!(
            message.contains("is a secret by its name") && message.contains(&format!("`{key}`")),
            "{lines}: {message}"
        );
        assert!(hints.contains("`env`"), "{hints}");
    }
    let fits = "env: {A_TOKEN: '${HF_TOKEN}'}\nextra_engine_args: --api-key ${MY_PASSWORD}\n\
                engine_args: {hf-token: '${HF_TOKEN}'}\ninclude: [{engine_args: {hf-token: '${HF_TOKEN}'}}]";
    let (message, _) = told_with(&entry(fits), &var);
    assert!(!message.contains("secret by its name"), "{message}");
    // Of others it helps to see what they brought.
    assert!(
        told_with(&entry("batch_size: ${PLAIN}"), &var)
            .0
            .contains("seen")
    );
}

#[test]
fn what_would_never_end_is_refused_at_once() {
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
                c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n\
                e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n\
                g: [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]\n";
    assert!(
        told(bomb)
            .0
            .ends_with("aliases repeat more than a file of this size can need")
    );
    assert!(told("a: &a [*a]\n").0.ends_with("nested too deeply"));
    assert!(told(&"[".repeat(1 << 20)).0.ends_with("nested too deeply"));
    assert!(
        told(&format!("a: {}1{}", "[".repeat(200), "]".repeat(200)))
            .0
            .ends_with("nested too deeply")
    );
    let list: Vec<String> = (1..=2000).map(|n| n.to_string()).collect();
    let list = list.join(",");
    let text = entry(&format!(
        "input_lengths: [{list}]\noutput_lengths: [{list}]\nbatch_sizes: [{list}]"
    ));
    assert_eq!(
        told(&text).0,
        "2:5: 8000000000 cells up to here, and a sweep may have 1000000"
    );
    // What the reader of YAML needs the square of its length for.
    let tags: String = (0..30_000).map(|n| format!("%TAG !{n}! x\n")).collect();
    assert_eq!(
        told(&format!("# as one says\n{tags}---\n{text}")).0,
        "2:1: a YAML directive (`%…`) is not supported here"
    );
    let later = format!("models: []\n...\r{tags}");
    assert!(
        told(&later)
            .0
            .ends_with("a YAML directive (`%…`) is not supported here")
    );
    // A million cells, and ten thousand patterns for each to be held against.
    let thousand: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    let thousand = thousand.join(",");
    let patterns = "  - {input_len: 1, output_len: 1}\n".repeat(10_000);
    let many = entry(&format!(
        "input_lengths: [{thousand}]\noutput_lengths: [{thousand}]\nexclude:\n{patterns}"
    ));
    assert_eq!(
        told(&many).0,
        "2:5: 1000000 cells up to here: too many patterns and arguments for this number"
    );
    let word = "m".repeat(1 << 20);
    for (key, line) in [
        (
            "container_name",
            format!("models: [{{model_id: m, container_name: {word}}}]"),
        ),
        (
            "model_id",
            format!("models: [{{model_id: {word}, container_name: c}}]"),
        ),
        ("max", entry(&format!("engine_args: {{max: {word}}}"))),
        (
            "extra_engine_args",
            entry(&format!("extra_engine_args: --max {word}")),
        ),
    ] {
        let said = told(&line).0;
        let wanted = format!("a text in `{key}` is longer than 4 KiB");
        assert!(said.ends_with(&wanted), "{key}: {said}");
    }
    let arguments: String = (0..5000).map(|n| format!("a{n}: 1, ")).collect();
    let said = told(&entry(&format!("engine_args: {{{arguments}}}"))).0;
    assert!(
        said.ends_with("`engine_args` has more than 1000 entries"),
        "{said}"
    );
    let long = matrix::read_sweep(
        "f",
        &" ".repeat((4 << 20) + 1),
        &nothing,
        &preset::load_preset,
    )
    .unwrap_err();
    assert_eq!(
        long.message,
        "f is longer than 4 MiB, the most of a sweep file"
    );
}
