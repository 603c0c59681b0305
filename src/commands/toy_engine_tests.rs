//! An engine that is one file in `engine/` and one line in its list is there in every verb.

use crate::capture::ContainerFacts;
use crate::engine::limits::{LoadLimits, Resource};
use crate::engine::log::auto::AutoParser;
use crate::engine::{EngineId, LogParser, parser_of, recognise};
use crate::estimate::{Deployment, case};
use crate::matrix::read_sweep;
use serde_json::json;

#[test]
fn a_toy_engine_is_named_recognised_and_its_log_read() {
    let toy = EngineId::from_name("Toy-Serve").unwrap();
    assert_eq!(toy.name, "toy");
    assert!(EngineId::all_names().ends_with(", toy"));
    let facts = ContainerFacts {
        argv: vec!["toy-serve".into(), "m".into()],
        ..ContainerFacts::default()
    };
    let (engine, recognition) = recognise(&facts).unwrap();
    assert_eq!((engine, recognition.serving), (toy, true));
    assert_eq!((engine.settings)(&facts).model.as_deref(), Some("m"));
    let line = b"toy-serve: ready";
    let mut parser = parser_of(toy);
    parser.line(line, None);
    assert!(parser.ready());
    let mut any = AutoParser::default();
    any.line(line, None);
    assert_eq!(any.engine(), Some(toy));
}

#[test]
fn a_toy_engine_is_swept_and_without_rules_not_estimated() {
    let toy = EngineId::from_name("toy").unwrap();
    let file = "models:\n  - {model_id: m, container_name: c, engine: toy-serve, input_len: 8, output_len: 8, batch_size: 1}\n";
    let sweep = read_sweep("s.yaml", file, &|_| None, &|name| {
        Err(crate::error::Failure::usage(name))
    })
    .unwrap();
    assert_eq!(sweep.cells[0].server.engine.as_deref(), Some("toy"));
    let why = "no memory rules are known for the engine `toy`";
    let mut refusals = vec![
        Deployment::of_engine(toy).unwrap_err(),
        crate::matrix::deployment(&sweep.cells[0].server, toy).unwrap_err(),
        case::read(&json!({"model": "m", "engine": "toy"})).unwrap_err(),
    ];
    refusals.dedup();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].what, why);
    assert!(refusals[0].hint.as_ref().unwrap().contains("vllm, sglang"));
    let limits = LoadLimits::of_engine("toy");
    assert!(limits.advice(Resource::KvPool, false).is_empty());
}
