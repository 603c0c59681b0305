//! A folder in which the commands of the pages find what they name.

use super::markdown::root;
use plimsoll::store::{RecordingHeader, RecordingWriter, StoredCapture};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A home, and a working folder in it, both of the test's own.
pub struct Stage(tempfile::TempDir);

/// How a command ended.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Names of profiles that pages use.
const PROFILES: &[&str] = &[
    "profile.json",
    "before.json",
    "after.json",
    "p.json",
    "old.json",
    "new.json",
    "results/p.json",
    "results/memory-profiles/tiny-profile.json",
    "results/memory-profiles/llama2-7b.json",
    "results/memory-profiles/llama2-7b-2.json",
];

/// A small model's configuration, for pages that name `./model`.
const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
  "intermediate_size": 2816, "num_attention_heads": 16, "num_hidden_layers": 12, "num_key_value_heads": 4,
  "vocab_size": 32000, "max_position_embeddings": 16384, "torch_dtype": "bfloat16"}"#;

/// Two models on one GPU.
const COMPOSE: &str = "services:
  chat:
    image: vllm/vllm-openai:v0.19.1
    command: [--model, Qwen/Qwen3-8B, --max-model-len, \"8192\"]
    deploy: &gpus {resources: {reservations: {devices: [{driver: nvidia, device_ids: [\"0\"], capabilities: [gpu]}]}}}
  small:
    image: vllm/vllm-openai:v0.19.1
    command: [--model, Qwen/Qwen3-0.6B, --max-model-len, \"4096\"]
    deploy: *gpus
";

/// A matrix of two cells in the container that pages call `idle`.
const SWEEP: &str = "models:
  - {model_id: tiny, container_name: idle, input_lengths: [16, 32], output_lengths: 8}
";

/// Settings to choose among, in the container that pages call `idle`.
const SETTINGS: &str = "models:
  - {model_id: tiny, container_name: idle, engine_args: {max-num-seqs: [16, 64], block-size: [16, 32]}}
";

impl Stage {
    pub fn new() -> Stage {
        let dir = tempfile::tempdir().expect("tempdir");
        let stage = Stage(dir);
        let here = stage.path();
        for folder in [
            "results/memory-profiles",
            "model",
            "bin",
            ".cache/plimsoll/models",
        ] {
            std::fs::create_dir_all(here.join(folder)).expect("folder");
        }
        for shared in ["configs", "scripts", "docs"] {
            link(&root().join(shared), &here.join(shared));
        }
        // Commands may write beside it.
        let example = root().join("results/example");
        for stored in ["results/example", "results/h100"] {
            copy(&root().join(stored), &here.join(stored));
        }
        link(
            Path::new(env!("CARGO_BIN_EXE_plimsoll")),
            &here.join("bin/plimsoll"),
        );
        for name in PROFILES {
            let path = here.join(name);
            let text = std::fs::read_to_string(example.join("tiny-profile.json")).expect("example");
            // The second of two that are compared is of another run, and has no capture.
            if name.starts_with("after") || name.starts_with("new") {
                let run = text.replacen("\"run_id\": \"", "\"run_id\": \"other-", 1);
                std::fs::write(&path, run).expect("profile");
                continue;
            }
            std::fs::write(&path, text).expect("profile");
            copy(
                &example.join("tiny-profile.capture"),
                &path.with_extension("capture"),
            );
        }
        let write = |name: &str, text: &str| std::fs::write(here.join(name), text).expect("file");
        write("model/config.json", CONFIG);
        write("sweep.yaml", SWEEP);
        write("compose.yaml", COMPOSE);
        write("matrix.yaml", SWEEP);
        write("settings.yaml", SETTINGS);
        write(
            "cases.jsonl",
            "{\"id\": 1, \"model\": \"Qwen/Qwen3-8B\", \"gpu\": \"H100\", \"max_model_len\": 4096}\n",
        );
        let log = root().join("tests/fixtures/vllm/captured/serve-eager.log");
        std::fs::copy(log, here.join("engine.log")).expect("log");
        stage.record("session.jsonl");
        stage.record("probe.jsonl");
        stage
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A recording with the samples of the example.
    fn record(&self, name: &str) {
        let stored = StoredCapture::open(&root().join("results/example/tiny-profile.capture"))
            .expect("example");
        let header = RecordingHeader {
            plimsoll_version: env!("CARGO_PKG_VERSION").into(),
            wall_start_ns: stored.capture.wall_start_ns,
            interval_ns: stored.capture.request.sample_interval_ns,
            devices: stored.capture.devices.clone(),
            backend: stored.capture.backend.clone(),
            ..RecordingHeader::default()
        };
        let mut writer =
            RecordingWriter::create_file(&self.path().join(name), header).expect("recording");
        for sample in stored.read_samples().expect("samples") {
            writer.write_sample(&sample).expect("sample");
        }
        writer
            .finish_recording(stored.capture.sampling.clone())
            .expect("recording");
    }

    /// What a line says and how it ends, by a shell as a reader has it.
    pub fn shell(&self, line: &str) -> Ended {
        // What a command makes, it does not write over.
        for (verb, file) in [
            ("plimsoll config init", "sweep.yaml"),
            ("plimsoll record", "session.jsonl"),
            ("plimsoll record", "probe.jsonl"),
        ] {
            if line.contains(verb) {
                let _ = std::fs::remove_file(self.path().join(file));
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![self.path().join("bin")];
        folders.extend(std::env::split_paths(&path));
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["PLIMSOLL_", "HF_", "NO_COLOR", "XDG_", "GITHUB_"]
                .iter()
                .any(|p| name.starts_with(p))
            {
                shell.env_remove(&*name);
            }
        }
        let output = shell
            .args(["-c", line])
            .current_dir(self.path())
            .env("PATH", std::env::join_paths(folders).expect("PATH"))
            .env("HOME", self.path())
            .env("HF_TOKEN", "none")
            // The pages show what a terminal that knows UTF-8 shows.
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .expect("sh");
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn link(from: &Path, to: &PathBuf) {
    std::os::unix::fs::symlink(from, to).expect("link");
}

/// A folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("folder");
    for entry in std::fs::read_dir(from).expect("folder") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("a name");
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).expect("copy")),
        }
    }
}
