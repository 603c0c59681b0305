//! `plimsoll demo`: a tour of four verbs on files that ship with the program, without an engine or a GPU.

use super::run_verb;
use crate::cli::{Cli, DemoArgs};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::store::{private, write_atomically};
use anyhow::Context;

/// A real run of the reference engine, which calls itself simulated, and the log of a real vLLM on a CPU.
const FILES: [(&str, &str); 4] = [
    (
        "tiny.capture/capture.json",
        include_str!("../../results/example/tiny-profile.capture/capture.json"),
    ),
    (
        "tiny.capture/samples.jsonl",
        include_str!("../../results/example/tiny-profile.capture/samples.jsonl"),
    ),
    (
        "tiny.capture/log.txt",
        include_str!("../../results/example/tiny-profile.capture/log.txt"),
    ),
    (
        "failed-vllm.log",
        include_str!("../../tests/fixtures/vllm/captured/fail-kv-too-small-flag.log"),
    ),
];

struct Stop {
    question: &'static str,
    /// As a user would type it; DIR is the folder of the files.
    command: &'static str,
    next: &'static str,
}

const STOPS: [Stop; 4] = [
    Stop {
        question: "1 of 4: What takes the memory? A stored run of a simulated engine.",
        command: "plimsoll derive DIR/tiny.capture",
        next: "With an engine of yours: `plimsoll profile NAME`, which measures first.",
    },
    Stop {
        question: "2 of 4: A page to show to others.",
        command: "plimsoll report DIR/tiny.json --format html",
        next: "Open the page in a browser. For a pull request: --format md.",
    },
    Stop {
        question: "3 of 4: Why did it not start? The log of a real vLLM on a CPU.",
        command: "plimsoll why DIR/failed-vllm.log",
        next: "For a container that died, restarts or hangs: `plimsoll why NAME`.",
    },
    Stop {
        question: "4 of 4: Will it fit? Calculated; nothing is started or downloaded.",
        command: "plimsoll estimate Qwen/Qwen3-8B --gpu L4",
        next: "With your own command: `plimsoll estimate --gpu L4 -- vllm serve MODEL`.",
    },
];

pub fn run_demo(console: &Console, args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let folder = args.results.dir.join("demo");
    for (name, text) in FILES {
        let file = folder.join(name);
        let parent = file.parent().unwrap_or(&folder);
        private::create_folders(parent).map_err(|e| {
            Failure::environment(format!("cannot create `{}`: {e}", parent.display()))
                .hint("--results-dir names another folder")
        })?;
        write_atomically(&file, text.as_bytes())?;
    }
    let shown = folder.display().to_string();
    for stop in &STOPS {
        let words = stop.command.split(' ').map(|w| w.replace("DIR", &shown));
        let line = stop.command.replace("DIR", &shown);
        console.write_data(format!("{}\n\n$ {line}\n", stop.question).as_bytes())?;
        let verb = Cli::from_words(words).context("a command of the tour")?;
        let code = run_verb(console, verb.command)?;
        if code != ExitCode::Done {
            return Ok(code);
        }
        console.write_data(format!("\n{}\n\n\n", stop.next).as_bytes())?;
    }
    console.write_data(
        format!(
            "The files are in {shown}; nothing else was written.\n\
             Next: `plimsoll doctor` shows what this machine has and lacks.\n"
        )
        .as_bytes(),
    )?;
    Ok(ExitCode::Done)
}
