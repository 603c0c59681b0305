//! An engine that is one file here and its line in [`super::EngineId`]: no other file names it.
//! Its tests show that this is enough.

use super::facts::LogReport;
use super::{
    BenchJob, BenchKind, BenchPlan, BenchResult, Engine, EngineDescription, LogParser, PlanError,
    ProbeFacts, ReadError, Recognition, ServerSettings,
};
use crate::capture::{AtNs, ContainerFacts, Probe};

const DESCRIPTION: EngineDescription = EngineDescription {
    name: "toy",
    aliases: &["toy-serve"],
    endpoints: &["/health"],
    log_marks: &["toy-serve:"],
    serve: "toy-serve {model}",
    ..EngineDescription::UNKNOWN
};

pub struct Toy;

impl Engine for Toy {
    fn description(&self) -> &'static EngineDescription {
        &DESCRIPTION
    }

    fn recognise(&self, facts: &ContainerFacts) -> Option<Recognition> {
        let serving = facts.argv.first().is_some_and(|word| word == "toy-serve");
        serving.then(|| Recognition {
            evidence: "process 1 runs `toy-serve`".to_owned(),
            serving,
        })
    }

    fn settings(&self, facts: &ContainerFacts) -> ServerSettings {
        ServerSettings {
            model: facts.argv.get(1).cloned(),
            ..ServerSettings::default()
        }
    }

    fn read_probes(&self, _probes: &[Probe]) -> ProbeFacts {
        ProbeFacts::default()
    }

    fn log_parser(&self) -> Box<dyn LogParser> {
        Box::<ToyLogParser>::default()
    }

    fn bench(&self, job: &BenchJob<'_>, _help: Option<&str>) -> Result<BenchPlan, PlanError> {
        Err(PlanError::NoSuchBench {
            engine: "toy",
            kind: job.kind.as_str(),
            reason: "it is a toy",
        })
    }

    fn read_bench(&self, _kind: BenchKind, _result: &str) -> Result<BenchResult, ReadError> {
        Err(ReadError::Missing("a bench"))
    }
}

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
