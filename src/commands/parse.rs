//! `plimsoll parse`: the facts on memory in a log file.

use super::why::check_beginning;
use crate::cli::ParseArgs;
use crate::console::Console;
use crate::engine::lines::parse_reader;
use crate::engine::log::auto::AutoParser;
use crate::engine::log::unwrap::Unwrapped;
use crate::engine::shown_name;
use crate::engine::{self, EngineId, LogParser};
use crate::error::{ExitCode, Failure};
use crate::redact::Redactor;
use crate::report;
use crate::store::bounded;
use std::io::{BufRead, BufReader, Read};

/// Large enough that lines seldom straddle two fillings.
const BUFFER_BYTES: usize = 256 * 1024;

pub fn run_parse(console: &Console, args: &ParseArgs) -> anyhow::Result<ExitCode> {
    let mut parser: Box<dyn LogParser> = if args.engine == "auto" {
        Box::new(Unwrapped::new(Box::new(AutoParser::default())))
    } else {
        engine::parser_of(EngineId::from_name(&args.engine).map_err(Failure::from)?)
    };
    let name = args.log.display().to_string();
    let unreadable =
        |e: std::io::Error| Failure::usage(format!("cannot read log `{name}`")).caused_by(e);
    let reader: Box<dyn Read> = if name == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(bounded::open_named(&args.log).map_err(unreadable)?)
    };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    check_beginning(&name, reader.fill_buf().map_err(unreadable)?)?;
    let mut report = parse_reader(parser.as_mut(), reader).map_err(unreadable)?;
    // A log that is shown to others is often quoted by what comes out here.
    let redactor = Redactor::default();
    let quotes = report.facts.values_mut().flat_map(|fact| &mut fact.quote);
    let steps = report.steps.iter_mut().map(|step| &mut step.quote);
    let words = (report.findings.iter_mut())
        .flat_map(|f| std::iter::once(&mut f.message).chain(&mut f.quote));
    let all = quotes.chain(steps).chain(words);
    all.for_each(|text| *text = redactor.redact_text(text).into_owned());
    let cause = parser.root_cause();
    let cause = cause.map(|cause| redactor.redact_text(&cause).into_owned());
    console.show_page(args.json, &report, |_| {
        report::facts::render_facts(&report, cause.as_deref())
    })?;
    // A fact without a quote ("no out-of-memory") does not show that it is such a log.
    let silent = report.facts.values().all(|f| f.quote.is_empty());
    if silent && report.steps.is_empty() && cause.is_none() {
        let of = match report.engine.as_str() {
            "unknown" => "an engine (--engine names one)",
            engine => shown_name(engine),
        };
        console.print_warning(&format!(
            "`{name}` has no lines about memory: is it a log of {of}?"
        ));
    }
    Ok(ExitCode::Done)
}
