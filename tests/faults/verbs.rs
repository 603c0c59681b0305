//! What is tried: each command with everything that it needs, on containers of the test's own.

use crate::common::docker;
use crate::common::e2e::{Engine, command, shell_image, wait_for};
use crate::common::wire::Wire;
use plimsoll::container::leftovers::boot_id;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// What the engine is told to take, MiB.
pub const WEIGHTS: f64 = 64.0;
pub const POOL: f64 = 32.0;
pub const ACTIVATION: f64 = 16.0;

/// Slow enough for a machine that runs many at once.
const ENGINE: [&str; 14] = [
    "--weights",
    "64MiB",
    "--kv-pool",
    "32MiB",
    "--activation",
    "16MiB",
    "--activation-ms",
    "150",
    "--start-ms",
    "1000",
    "--load-ms",
    "400",
    "--settle-ms",
    "1200",
];

/// A row of the table, beside the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Serving,
    Idle,
    Run,
    Sweep,
    Clean,
}

impl Verb {
    pub const ALL: [Verb; 5] = [
        Verb::Serving,
        Verb::Idle,
        Verb::Run,
        Verb::Sweep,
        Verb::Clean,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Verb::Serving => "profile, serving",
            Verb::Idle => "profile, idle",
            Verb::Run => "run",
            Verb::Sweep => "sweep",
            Verb::Clean => "clean --apply",
        }
    }

    /// Exit codes that it may end with when the daemon fails.
    pub fn codes(self) -> &'static [i32] {
        match self {
            Verb::Serving | Verb::Idle | Verb::Run => &[0, 3, 4],
            Verb::Sweep => &[0, 3, 4, 5],
            Verb::Clean => &[0, 3, 8],
        }
    }

    /// A container for it, where it is given one. `part` is in its name.
    pub fn container(self, part: &str) -> Option<Engine> {
        match self {
            Verb::Serving => {
                let words = ["serve", "--model", "reference/test"];
                let args = [&words[..], &ENGINE].concat();
                let engine = Engine::run(part, &[], shell_image(), &args);
                engine.wait_for_log("phase=ready");
                Some(engine)
            }
            Verb::Idle => Some(Engine::idle_with_shell(part, &[])),
            Verb::Run | Verb::Sweep => None,
            Verb::Clean => Some(lost(part)),
        }
    }

    /// Whether a container can be used again after a good end.
    pub fn leaves_it(self) -> bool {
        matches!(self, Verb::Serving | Verb::Idle)
    }

    /// The command, speaking to Docker by the wire. `name`: of its container. `desk`: a folder of
    /// the try's own.
    pub fn command(self, wire: &Wire, name: &str, desk: &Path) -> Command {
        let results = format!("--results-dir={}", desk.join("results").display());
        let extra = ENGINE.join(" ");
        let file = desk.join("sweep.yaml");
        let args: Vec<String> = match self {
            Verb::Serving => words(&[
                "profile",
                name,
                "--num-prompts=4",
                "--max-concurrency=1",
                "--request-rate=6",
                "--num-iters-warmup=1",
                "--baseline=300ms",
                "--timeout=60s",
                &results,
            ]),
            Verb::Idle => words(&[
                "profile",
                name,
                "--model=reference/test",
                "--num-iters=4",
                "--baseline=300ms",
                "--timeout=60s",
                &results,
                &format!("--extra-engine-args={extra}"),
            ]),
            Verb::Run => words(&[
                "run",
                "--preset=reference",
                "--name",
                name,
                "--num-prompts=6",
                "--max-concurrency=2",
                "--baseline=300ms",
                "--timeout=60s",
                "--health-timeout=40s",
                &results,
                &format!("--extra-engine-args={extra}"),
            ]),
            Verb::Sweep => {
                std::fs::write(&file, sweep_file()).expect("sweep file");
                words(&[
                    "sweep",
                    &file.display().to_string(),
                    "--timeout=60s",
                    "--health-timeout=40s",
                    &results,
                ])
            }
            Verb::Clean => words(&[
                "clean",
                "--apply",
                "--memory-backend=host",
                "--grace=3s",
                "--settle-timeout=10s",
            ]),
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_plimsoll")), &args);
        command
            .env("DOCKER_HOST", wire.host())
            .env("XDG_STATE_HOME", desk.join("state"))
            .env("XDG_CACHE_HOME", desk.join("cache"));
        command
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn sweep_file() -> String {
    let mut text = "name: faults\ndefaults:\n  image: plimsoll/reference-engine:dev\n  engine: reference\n  input_lengths: [16]\n  output_lengths: [8]\n  batch_sizes: [1, 2]\n  num_iters: 3\n  engine_args: {".to_owned();
    let pairs = ENGINE
        .chunks(2)
        .map(|p| format!("{}: {}", &p[0][2..], p[1]));
    let _ = write!(text, "{}", pairs.collect::<Vec<_>>().join(", "));
    text.push_str("}\nmodels:\n  - model_id: tiny\n");
    text
}

/// A container as a plimsoll that died left it.
fn lost(part: &str) -> Engine {
    // No number is so high.
    let owner = format!("plimsoll.owner={}:4194303:1", boot_id());
    let options = ["--label", &owner, "--label", "plimsoll.run=lost"];
    let script = "trap 'exit 0' TERM; echo up; while true; do sleep 0.2; done";
    let options = [&options[..], &["--entrypoint", "/bin/sh"]].concat();
    let engine = Engine::run(part, &options, shell_image(), &["-c", script]);
    engine.wait_for_log("up");
    engine
}

/// What runs in a container, once it stays so for a moment: a process that is just ending is none
/// that was left.
pub fn settled(engine: &Engine, base: &[String]) -> Vec<String> {
    let begin = std::time::Instant::now();
    wait_for("its processes", || {
        let now = engine.processes();
        (now == base || begin.elapsed().as_secs() >= 5).then_some(now)
    })
}

pub fn exists(name: &str) -> bool {
    docker(&["inspect", "-f", "{{.Id}}", name]).is_ok()
}
