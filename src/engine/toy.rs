//! An engine that is one file here and its line in [`super::EngineId`]: no other file names it.
//! Its tests show that this is enough.

use super::facts::LogReport;
use super::{Engine, LogParser, Recognition, ServerSettings};
use crate::capture::AtNs;

pub static ENGINE: Engine = Engine {
    name: "toy",
    aliases: &["toy-serve"],
    endpoints: &["/health"],
    log_marks: &["toy-serve:"],
    serve: "toy-serve {model}",
    recognise: |facts| {
        let serving = facts.argv.first().is_some_and(|word| word == "toy-serve");
        serving.then(|| Recognition::serving("process 1 runs `toy-serve`"))
    },
    settings: |facts| ServerSettings {
        model: facts.argv.get(1).cloned(),
        ..ServerSettings::default()
    },
    ..Engine::defaults(
        || Box::<ToyLogParser>::default(),
        |job, _| Err(job.no_such_bench("toy", "it is a toy")),
    )
};

#[derive(Default)]
struct ToyLogParser {
    ready: bool,
}

impl LogParser for ToyLogParser {
    fn line(&mut self, line: &[u8], _at: Option<AtNs>) {
        self.ready |= line.starts_with(b"toy-serve: ready");
    }

    fn step_count(&self) -> usize {
        0
    }

    fn report(&self) -> LogReport {
        LogReport {
            engine: "toy".to_owned(),
            ..LogReport::default()
        }
    }

    fn root_cause(&self) -> Option<String> {
        None
    }

    fn ready(&self) -> bool {
        self.ready
    }
}
