//! The sweep file: what it means, and how each mistake in it is told.

use plimsoll::error::{ExitCode, Failure};
use plimsoll::matrix::{self, BenchWord, Cell, EnginePlace, SweepDefinition};
use plimsoll::preset::{self, Preset};
use std::time::Duration;

mod mistakes;
mod properties;

fn nothing(_: &str) -> Option<String> {
    None
}

fn read(text: &str) -> Result<SweepDefinition, Failure> {
    read_with(text, &nothing)
}

fn read_with(text: &str, var: &dyn Fn(&str) -> Option<String>) -> Result<SweepDefinition, Failure> {
    matrix::read_sweep("dir/my sweep.yaml", text, var, &preset::load_preset)
}

fn cells(text: &str) -> Vec<Cell> {
    read(text)
        .unwrap_or_else(|e| panic!("{e} {:?}\n{text}", e.hints))
        .cells
}

/// The message without the file's name, and the hints.
fn told(text: &str) -> (String, String) {
    told_with(text, &nothing)
}

fn told_with(text: &str, var: &dyn Fn(&str) -> Option<String>) -> (String, String) {
    let failure = match read_with(text, var) {
        Err(failure) => failure,
        Ok(sweep) => panic!("{} cells of\n{text}", sweep.cells.len()),
    };
    assert_eq!(failure.code, ExitCode::Usage);
    let message = failure
        .message
        .strip_prefix("dir/my sweep.yaml:")
        .unwrap_or_else(|| panic!("no place: {}", failure.message));
    (message.to_owned(), failure.hints.join("; "))
}

const TWO_MODELS: &str = "
models:
  - model_id: org/small-7b
    container_name: engine
    input_lengths: [256, 512, 1024]
    output_lengths: [256, 512]
    batch_sizes: [1, 8, 16]
    dtype: float16
    tensor_parallel_size: 1
    quantization: null
    model_params: 6.7e9
    num_layers: 32
    num_heads: 32
    hidden_size: 4096

  - hf_model_id: org/large-70b
    container_name: engine
    input_lengths: [512, 1024]
    output_lengths: [256, 512]
    batch_sizes: [1, 4, 8]
    dtype: \"float16\"
    tensor_parallel_size: 4
    model_params: \"70e9\"
    num_layers: 80
    head_dim: 128
    gpu_memory_utilization: 0.9
    max_model_len: 4096
    kv_cache_dtype: fp8
";

#[test]
fn two_models_are_18_and_12_cells_in_two_groups() {
    let sweep = read(TWO_MODELS).unwrap();
    assert_eq!(sweep.name, "my-sweep");
    assert_eq!(sweep.cells.len(), 18 + 12);
    let (small, large) = sweep.cells.split_at(18);
    let a = &small[0].server;
    assert!(small.iter().all(|c| c.group == small[0].group));
    assert!(
        large
            .iter()
            .all(|c| c.group == large[0].group && c.group != small[0].group)
    );
    assert_eq!(a.model, "org/small-7b");
    assert_eq!(a.place, EnginePlace::Container("engine".into()));
    assert_eq!(a.settings.dtype.as_deref(), Some("float16"));
    assert_eq!(a.settings.quantization, None);
    assert_eq!(a.architecture["model_params"], 6.7e9);
    let b = &large[0].server;
    assert_eq!(b.architecture["model_params"], 70e9);
    assert_eq!(b.architecture["head_dim"], 128.0);
    assert_eq!(b.settings.tensor_parallel_size, Some(4));
    assert_eq!(b.settings.gpu_memory_utilization, Some(0.9));
    assert_eq!(b.settings.max_model_len, Some(4096));
    assert_eq!(b.settings.kv_cache_dtype.as_deref(), Some("fp8"));
    let load = &small[17].load;
    assert_eq!(
        (load.input_len, load.output_len, load.batch_size),
        (1024, 512, Some(16))
    );
    assert_eq!((load.bench, load.repeats), (BenchWord::Auto, 1));
}

/// An entry with these further lines.
fn entry(lines: &str) -> String {
    let mut text = String::from("models:\n  - model_id: m\n    container_name: c\n");
    for line in lines.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    text
}

fn image(lines: &str) -> String {
    entry(lines).replace("container_name: c", "image: i")
}

#[test]
fn a_scalar_is_a_list_of_one_and_lengths_have_defaults() {
    let one = cells(&entry("input_len: 7\noutput_length: 9\nbatch_size: 2"));
    assert_eq!(one[0].describe_load(), "in 7 out 9 batch 2");
    assert_eq!(
        cells(&entry(""))[0].describe_load(),
        "in 256 out 128 batch 1"
    );
    let rates = cells(&entry("request_rates: [0.5, 2]\nbatch_size: null"));
    assert_eq!(rates.len(), 2);
    assert_eq!(rates[0].describe_load(), "in 256 out 128 rate 0.5/s");
    assert_eq!(
        rates[0].load.spell_load(),
        "input 256, output 128 tokens, 0.5 requests/s"
    );
    assert_eq!(
        one[0].load.spell_load(),
        "input 7, output 9 tokens, batch 2"
    );
    // The length of a batch of a bench that has none.
    assert_eq!(cells(&entry("bench: throughput"))[0].load.batch_size, None);
}

#[test]
fn counts_may_be_written_as_floats_and_texts() {
    let text =
        entry("batch_sizes: [1e1, \"2e1\", 30.0, \"40\"]\nmodel_params: 6.7e9\nnum_layers: '32'");
    let found = cells(&text);
    let batches: Vec<_> = found.iter().filter_map(|c| c.load.batch_size).collect();
    assert_eq!(batches, [10, 20, 30, 40]);
    assert_eq!(found[0].server.architecture["num_layers"], 32.0);
}

#[test]
fn every_engine_setting_can_be_an_axis_and_null_among_its_values() {
    let found = cells(&entry(
        "tensor_parallel_size: [1, 2]\nquantization: [null, awq]\nenforce_eager: [true, false]\n\
         max_model_len: [null, 4096]\ngpu_memory_utilization: [0.5, 0.9]\ndtype: [auto, half]\n\
         kv_cache_dtype: [null, fp8]\nbatch_sizes: [1, 2]",
    ));
    assert_eq!(found.len(), 2usize.pow(8));
    let groups: std::collections::HashSet<_> = found.iter().map(|c| &c.group).collect();
    assert_eq!(groups.len(), 2usize.pow(7));
    let last = &found.last().unwrap().server.settings;
    assert_eq!(last.quantization.as_deref(), Some("awq"));
    assert!(!last.enforce_eager && last.max_model_len == Some(4096));
    // Cells of one start of the engine follow each other.
    assert!(found.chunks(2).all(|pair| pair[0].group == pair[1].group));
}

#[test]
fn any_argument_of_the_engine_can_be_an_axis() {
    let found = cells(&entry(
        "engine_args:\n  max-num-seqs: [64, 256]\n  --enable-prefix-caching: [true, false]\n  \
         swap-space: 0\n  rope: null\n  -x: a,b\nextra_engine_args: --lora 'a b' --lora c",
    ));
    let args: Vec<String> = found
        .iter()
        .map(|c| c.server.engine_args.join("|"))
        .collect();
    let tail = "--swap-space|0|-x|a,b|--lora|a b|--lora|c";
    assert_eq!(
        args,
        [
            format!("--enable-prefix-caching|--max-num-seqs|64|{tail}"),
            format!("--max-num-seqs|64|{tail}"),
            format!("--enable-prefix-caching|--max-num-seqs|256|{tail}"),
            format!("--max-num-seqs|256|{tail}"),
        ]
    );
}

#[test]
fn a_flag_is_the_same_however_it_is_spelt() {
    let found = cells(&entry(
        "engine_args: {max_num_seqs: [64, 256, 512], served-model-name: x, -pp: 2}\n\
         exclude: [{engine_args: {max-num-seqs: 512}}]\n\
         include: [{engine_args: {max-num-seqs: 8}}]",
    ));
    let args: Vec<String> = found
        .iter()
        .map(|c| c.server.engine_args.join(" "))
        .collect();
    let tail = "--served-model-name x";
    assert_eq!(
        args,
        [
            format!("--max_num_seqs 64 {tail} -pp 2"),
            format!("--max_num_seqs 256 {tail} -pp 2"),
            format!("--max-num-seqs 8 {tail} -pp 2"),
        ]
    );
}

#[test]
fn several_models_and_containers_are_axes() {
    let found = cells("models: [{model_id: [a, b], container_name: [x, y], batch_size: [1, 2]}]");
    let told: Vec<String> = found
        .iter()
        .map(|c| {
            format!(
                "{}{}{}",
                c.server.model,
                c.server.place.place_name(),
                c.load.batch_size.unwrap()
            )
        })
        .collect();
    assert_eq!(
        told,
        ["ax1", "ax2", "ay1", "ay2", "bx1", "bx2", "by1", "by2"]
    );
}

#[test]
fn an_image_is_started_as_the_entry_says() {
    let found = cells(&image(
        "engine: vllm\ngpus: [0, 2]\nshm_size: 16GiB\nmemory: 64g\nipc_host: true\namd: false\n\
         env: {A: x, N: 3, B: true}\nvolumes: ['/m:/m:ro', '/d:/d']\nhf_cache: /hf",
    ));
    let server = &found[0].server;
    assert_eq!(server.engine.as_deref(), Some("vllm"));
    let EnginePlace::Image(preset) = &server.place else {
        panic!("{:?}", server.place)
    };
    let env = [("A", "x"), ("B", "true"), ("N", "3")];
    let expected = Preset {
        image: Some("i".into()),
        gpus: Some("device=0,2".into()),
        shm_size: Some("16GiB".into()),
        memory: Some("64g".into()),
        ipc_host: true,
        env: env.map(|(k, v)| (k.into(), v.into())).into(),
        volumes: ["/m:/m:ro", "/d:/d", "/hf:/root/.cache/huggingface"]
            .map(String::from)
            .to_vec(),
        ..Preset::default()
    };
    assert_eq!(**preset, expected);
}

#[test]
fn a_preset_gives_what_the_entry_leaves_open_and_no_more() {
    let found = cells("models: [{preset: vllm-cpu, max_model_len: [null, 512], memory: 8GiB}]");
    let [whole, short] = found.as_slice() else {
        panic!("{}", found.len())
    };
    assert_eq!(whole.server.model, "/models/tiny-llama");
    assert_eq!(whole.server.engine.as_deref(), Some("vllm"));
    assert_eq!(whole.server.place.place_name(), "plimsoll/vllm-cpu:dev");
    assert_eq!(
        whole.server.engine_args,
        [
            "--enforce-eager",
            "--max-model-len",
            "2048",
            "--kv-cache-memory-bytes",
            "268435456"
        ]
    );
    // The engine takes the last of two, and the preset's would have stood last.
    assert_eq!(
        short.server.engine_args,
        ["--enforce-eager", "--kv-cache-memory-bytes", "268435456"]
    );
    let EnginePlace::Image(preset) = &short.server.place else {
        panic!()
    };
    assert_eq!(preset.memory.as_deref(), Some("8GiB"));
    assert_eq!(preset.shm_size.as_deref(), Some("1GiB"));
}

#[test]
fn an_entry_wins_over_the_defaults() {
    let found = cells(
        "defaults: {image: i, gpus: all, dtype: half, batch_sizes: [1, 2], seed: 7, env: {A: x, B: y},\n \
         engine_args: {a: 1, b: 2}}\n\
         models:\n  - {model_id: one}\n  - {model_id: two, dtype: null, batch_size: 8, container_name: c}\n  \
         - {model_id: three, batch_size: 1, env: {B: z, A: null}, engine_args: {b: 3}}\n  \
         - {model_id: four, batch_size: 1, env: null, engine_args: null}",
    );
    assert_eq!(found.len(), 5);
    assert_eq!(found[0].server.settings.dtype.as_deref(), Some("half"));
    assert_eq!(found[2].server.settings.dtype, None);
    assert_eq!(found[2].server.place, EnginePlace::Container("c".into()));
    assert_eq!(found[2].load.seed, Some(7));
    let env = |cell: &Cell| match &cell.server.place {
        EnginePlace::Image(preset) => format!("{:?}", preset.env),
        EnginePlace::Container(_) => panic!(),
    };
    assert_eq!(env(&found[0]), r#"{"A": "x", "B": "y"}"#);
    assert_eq!(env(&found[3]), r#"{"B": "z"}"#);
    assert_eq!(env(&found[4]), "{}");
    assert_eq!(found[3].server.engine_args, ["--a", "1", "--b", "3"]);
    assert!(found[4].server.engine_args.is_empty());
}

#[test]
fn the_top_of_the_file_says_name_and_times() {
    let text = format!(
        "name: x\nschema_version: '1'\ntimeout: 30m\nhealth_timeout: 90\n{}",
        entry("")
    );
    let sweep = read(&text).unwrap();
    assert_eq!(sweep.name, "x");
    assert_eq!(sweep.timeout, Some(Duration::from_secs(1800)));
    assert_eq!(sweep.health_timeout, Some(Duration::from_secs(90)));
    for (shown, name) in [
        ("a/b.yml", "b"),
        (".yaml", "sweep"),
        ("standard input", "sweep"),
        ("x y/..", "sweep"),
        ("ü.txt", "ü.txt"),
    ] {
        let sweep = matrix::read_sweep(shown, &entry(""), &nothing, &preset::load_preset).unwrap();
        assert_eq!(sweep.name, name, "{shown}");
    }
}

#[test]
fn lists_go_side_by_side_where_zip_says_so() {
    let found = cells(&entry(
        "input_lengths: [1, 1, 3]\noutput_lengths: [4, 5, 6]\nbatch_sizes: [7, 8]\nzip: [[input_len, output_lengths]]",
    ));
    let words: Vec<String> = found.iter().map(Cell::describe_load).collect();
    assert_eq!(
        words,
        [
            "in 1 out 4 batch 7",
            "in 1 out 4 batch 8",
            "in 1 out 5 batch 7",
            "in 1 out 5 batch 8",
            "in 3 out 6 batch 7",
            "in 3 out 6 batch 8",
        ]
    );
    let mixed = cells(&entry(
        "tensor_parallel_size: [1, 2]\nengine_args: {a: [x, y]}\nzip: [tensor_parallel_size, engine_args.a]",
    ));
    assert_eq!(mixed.len(), 2);
    assert_eq!(mixed[1].server.engine_args, ["--a", "y"]);
}

#[test]
fn cells_can_be_left_out_and_added() {
    let found = cells(&entry(
        "input_lengths: [1, 2]\nbatch_sizes: [3, 4, 5]\nquantization: [null, awq]\n\
         exclude:\n  - {input_len: 2, batch_sizes: [4, 5]}\n  - {quantization: null}\n\
         include:\n  - {input_lengths: 9, batch_size: 1, quantization: awq, engine_args: {x: 1}}",
    ));
    let words: Vec<String> = found.iter().map(Cell::describe_load).collect();
    assert_eq!(
        words,
        [
            "in 1 out 128 batch 3",
            "in 1 out 128 batch 4",
            "in 1 out 128 batch 5",
            "in 2 out 128 batch 3",
            "in 9 out 128 batch 1",
        ]
    );
    assert_eq!(found[4].server.engine_args, ["--x", "1"]);
    // What nobody says is matched as it is; and a rate is no batch of one.
    let rates = cells(&entry(
        "dtype: [a, b]\nexclude: [{dtype: a, input_len: 256, batch_size: 1}]\ninclude: [{dtype: a, request_rate: 2}]",
    ));
    let words: Vec<String> = rates.iter().map(Cell::describe_load).collect();
    assert_eq!(words, ["in 256 out 128 batch 1", "in 256 out 128 rate 2/s"]);
    // A pattern of the defaults need match in one entry only.
    let shared = "defaults: {container_name: c, batch_sizes: [1, 2], exclude: [{batch_size: 2, dtype: half}]}\n\
                  models: [{model_id: a, dtype: half}, {model_id: b}]";
    assert_eq!(cells(shared).len(), 3);
}

#[test]
fn variables_are_put_in() {
    let var = |name: &str| match name {
        "MODEL" => Some("org/m".to_owned()),
        "SIZES" => Some("1, 2,4".to_owned()),
        "EMPTY" => Some(String::new()),
        "YES" => Some("true".to_owned()),
        _ => None,
    };
    let text = "models: [{model_id: '${MODEL}-x', container_name: '${NOT:-c}$$d$e', batch_sizes: '${SIZES}',\n \
                dtype: '${EMPTY:-half}', quantization: '${EMPTY}', enforce_eager: '${YES}',\n \
                engine_args: {a: '${YES}', b: '${SIZES}', c: '${EMPTY}'}}]";
    let found = read_with(text, &var).unwrap().cells;
    let server = &found[0].server;
    assert_eq!(server.model, "org/m-x");
    assert_eq!(server.place.place_name(), "c$d$e");
    let batches: Vec<_> = found.iter().filter_map(|c| c.load.batch_size).collect();
    assert_eq!(batches, [1, 2, 4]);
    assert_eq!(server.settings.dtype.as_deref(), Some("half"));
    assert_eq!(server.settings.quantization, None);
    assert!(server.settings.enforce_eager);
    assert_eq!(server.engine_args, ["--a", "--b", "1, 2,4"]);
}

#[test]
fn anchors_aliases_and_merge_keys_are_yaml_as_ever() {
    let found = cells(
        "models:\n  - &base\n    model_id: a\n    container_name: c\n    batch_sizes: &b [1, 2]\n  \
         - <<: *base\n    model_id: b\n  - {<<: [{dtype: half, seed: 1}, *base], model_id: c, input_lengths: *b}\n",
    );
    assert_eq!(found.len(), 2 + 2 + 4);
    assert_eq!(found[4].server.settings.dtype.as_deref(), Some("half"));
    let (message, _) = told("models:\n  - <<: 7\n    model_id: b\n");
    assert_eq!(message, "2:5: `<<` merges maps, and `7` is none");
}

fn shipped() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/sweeps");
    let mut files: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(file.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn home(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/me".to_owned())
}

#[test]
fn every_shipped_sweep_means_what_its_table_says() {
    let table = include_str!("../../configs/README.md");
    let files = shipped();
    assert_eq!(files.len(), 9);
    for (name, text) in files {
        let sweep = matrix::read_sweep(&name, &text, &home, &preset::load_preset)
            .unwrap_or_else(|e| panic!("{e} {:?}", e.hints));
        let row = format!("| `sweeps/{name}` | {} |", sweep.cells.len());
        assert!(table.contains(&row), "no `{row}` in configs/README.md");
    }
}

#[test]
fn the_schema_takes_what_the_reader_takes_and_refuses_what_an_editor_should_mark() {
    let schema = jsonschema::validator_for(&matrix::sweep_schema()).unwrap();
    let valid = |text: &str| {
        let value: serde_json::Value = as_json(text);
        schema.is_valid(&value)
    };
    for (name, text) in shipped() {
        assert!(valid(&text), "{name}");
    }
    assert!(valid(TWO_MODELS));
    for bad in [
        "models: []",
        "modles: [{}]",
        "models: [{batch_sises: 1}]",
        "models: [{batch_sizes: []}]",
        "models: [{input_lengths: [0]}]",
        "models: [{bench: latensy}]",
        "models: [{gpu_memory_utilization: 90}]",
        "models: [{enforce_eager: maybe}]",
    ] {
        assert!(!valid(bad), "{bad}");
    }
}

/// YAML as an editor sees it.
fn as_json(text: &str) -> serde_json::Value {
    serde_yaml::from_str(text).unwrap()
}

mod command {
    //! `plimsoll config`, as it is run.

    use assert_cmd::Command;
    use predicates::prelude::*;

    fn config(args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("plimsoll").unwrap();
        command.arg("config").args(args).env("HOME", "/home/me");
        command
    }

    #[test]
    fn the_starter_is_written_once_and_passes_its_check() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.yaml");
        let file = path.to_str().unwrap();
        config(&["init", file]).assert().success().stdout("");
        config(&["check", file])
            .assert()
            .success()
            .stdout(format!("{file}: 6 cells in 1 group, container vllm\n"));
        std::fs::write(&path, "mine").unwrap();
        config(&["init", file])
            .assert()
            .code(2)
            .stderr(predicate::str::contains("exists"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let printed = config(&["init"]).assert().success();
        let starter = printed.get_output().stdout.clone();
        config(&["check", "-"])
            .write_stdin(starter)
            .env("CONTAINER", "a")
            .assert()
            .success()
            .stdout("-: 6 cells in 1 group, container a\n");
    }

    #[test]
    fn a_mistake_ends_with_2_its_place_and_a_way_out() {
        config(&["check", "-"])
            .write_stdin("models:\n  - modl_id: m\n")
            .assert()
            .code(2)
            .stdout("")
            .stderr(
                predicate::str::contains("standard input:2:5: unknown key `modl_id`")
                    .and(predicate::str::contains("did you mean `model_id`?")),
            );
        config(&["check", "/nowhere/x.yaml"]).assert().code(2);
        config(&["check", "-"])
            .write_stdin([0xff, 0xfe, 0x00])
            .assert()
            .code(2)
            .stderr(predicate::str::contains("not text in UTF-8"));
    }

    #[test]
    fn containers_and_images_are_named() {
        config(&["check", "-"])
            .write_stdin(
                "models: [{model_id: m, container_name: [a, b]}, {model_id: m, image: i, gpus: 1}]",
            )
            .assert()
            .success()
            .stdout("-: 3 cells in 3 groups, containers a, b, image i\n");
    }

    #[test]
    fn the_schema_is_json() {
        let printed = config(&["schema"]).assert().success();
        let schema: serde_json::Value =
            serde_json::from_slice(&printed.get_output().stdout).unwrap();
        assert_eq!(schema, plimsoll::matrix::sweep_schema());
    }
}

#[test]
fn the_reference_has_every_key() {
    let reference = include_str!("../../docs/SWEEP.md");
    let schema = matrix::sweep_schema();
    for place in ["/properties", "/$defs/entry/properties"] {
        let keys = schema.pointer(place).unwrap().as_object().unwrap();
        for (key, spec) in keys {
            let alias = spec["description"]
                .as_str()
                .unwrap()
                .contains("The same as");
            assert!(
                alias || reference.contains(&format!("`{key}`")),
                "`{key}` is not in docs/SWEEP.md"
            );
        }
    }
}
