//! A simulated engine: an engine's surface around exactly known memory. This file picks the command.

mod args;
mod bench;
mod device;
mod faults;
mod http;
mod json;
mod kv;
mod latency;
mod load;
mod memory;
mod phases;
mod server;
mod signals;
mod size;
mod truth;

use args::{Args, Spec, Stop};
use phases::{Phase, Phases};
use signals::OnSignal;
use truth::Truth;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "usage: reference-engine idle | serve | bench latency | bench throughput | bench serve [flags]
A simulated LLM engine that uses exactly the memory it is told to. `<command> --help` lists the flags.";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let code = match run(&words) {
        Ok(code) => code,
        Err(Stop::Help(text)) => {
            println!("{text}");
            0
        }
        Err(Stop::Usage(message)) => {
            eprintln!("error: {message}");
            2
        }
        Err(Stop::Failed(message)) => {
            eprintln!("error: {message}");
            1
        }
    };
    std::process::exit(code);
}

fn run(words: &[String]) -> Result<i32, Stop> {
    let word = |n: usize| words.get(n).map(String::as_str);
    match (word(0), word(1)) {
        (Some("idle"), _) => idle(&words[1..]),
        (Some("serve"), _) => {
            let (args, phases) = begin(&server::SPEC, &words[1..], OnSignal::ExitZero)?;
            server::run(server::Settings::read(&args)?, phases)
        }
        (Some("bench"), Some("latency")) => {
            let (args, phases) = begin(&bench::LATENCY, &words[2..], OnSignal::ExitBySignal)?;
            bench::latency(&args, &Truth::read(&args)?, phases)
        }
        (Some("bench"), Some("throughput")) => {
            let (args, phases) = begin(&bench::THROUGHPUT, &words[2..], OnSignal::ExitBySignal)?;
            bench::throughput(&args, &Truth::read(&args)?, phases)
        }
        (Some("bench"), Some("serve")) => {
            let (args, phases) = begin(&load::SPEC, &words[2..], OnSignal::ExitBySignal)?;
            load::run(&args, phases)
        }
        (Some("--version" | "-V"), _) => Err(Stop::Help(format!("reference-engine {VERSION}"))),
        (Some("--help" | "-h" | "help"), _) => Err(Stop::Help(USAGE.into())),
        (Some("bench"), Some("--help" | "-h")) => Err(Stop::Help(USAGE.into())),
        (None, _) | (Some("bench"), None) => Err(Stop::Usage(format!("a command is required\n{USAGE}"))),
        (Some("bench"), Some(other)) => Err(Stop::Usage(format!("invalid choice: 'bench {other}'\n{USAGE}"))),
        (Some(other), _) => Err(Stop::Usage(format!("invalid choice: '{other}'\n{USAGE}"))),
    }
}

/// Reads the arguments, and only when all of them are good takes the signals over.
fn begin(spec: &'static Spec, words: &[String], on_signal: OnSignal) -> Result<(Args, &'static Phases), Stop> {
    let args = Args::parse(spec, words)?;
    args.check()?;
    let mut faults = faults::parse_all(args.all("fault"))?;
    if let Ok(list) = std::env::var("REFERENCE_FAULT") {
        faults.extend(faults::parse_all(list.split(',').map(str::trim).filter(|f| !f.is_empty()))?);
    }
    let phases: &'static Phases = Box::leak(Box::new(Phases::new(faults)));
    memory::keep_own_heap_small();
    signals::take_over(phases, on_signal);
    Ok((args, phases))
}

const IDLE: Spec = Spec {
    usage: "reference-engine idle [--fault KIND]",
    about: "Wait for a signal, as the first process of a container in which benches are executed.\n\
            REFERENCE_FAULT is left alone here: it is meant for the command that runs inside.",
    groups: &[faults::FLAGS],
};

fn idle(words: &[String]) -> Result<i32, Stop> {
    let args = Args::parse(&IDLE, words)?;
    let faults = faults::parse_all(args.all("fault"))?;
    let phases: &'static Phases = Box::leak(Box::new(Phases::new(faults)));
    signals::take_over(phases, OnSignal::ExitZero);
    phases.banner("none");
    phases.enter(Phase::Start, "");
    signals::wait_forever()
}
