//! One file per subcommand: read the settings, call down once, hand the result to the console.

mod ablate;
mod calibrate;
mod clean;
mod compare;
mod config;
mod cuda_graphs;
mod demo;
mod derive;
mod doctor;
mod estimate;
mod experiment;
mod fit;
mod gpus;
mod load;
mod loadline;
mod man;
mod models;
mod parse;
mod profile;
mod record;
mod replay;
mod report;
mod run;
mod schema;
mod start;
mod sweep;
mod top;
#[cfg(test)]
mod toy_engine_tests;
mod tune;
mod validate;
mod watch;
mod why;

use crate::cli::{Cli, ColorWhen, Command, OutputArgs};
use crate::console::{ColorChoice, Console, ConsoleOptions};
use crate::error::{ExitCode, Failure};
use crate::telemetry;

/// Runs the command line and returns its exit code. Errors are printed here, once.
pub fn run_command(cli: Cli) -> ExitCode {
    crate::store::private::restrict_umask();
    crate::host::allow_many_files();
    let console = Console::new(console_options(cli.talk));
    console.install_logger();
    if let Some(path) = cli.nvml_lib.filter(|p| !p.is_empty()) {
        telemetry::use_library(path.into());
    }
    if let Some(path) = cli.sysfs_root {
        if !path.is_dir() {
            let failure = Failure::usage(format!("`{}` is not a directory", path.display()))
                .hint("--sysfs-root names a tree to read instead of /sys");
            return console.print_error(&failure.into());
        }
        telemetry::amd::use_sysfs(path);
    }
    run_verb(&console, cli.command).unwrap_or_else(|error| console.print_error(&error))
}

/// Runs one verb.
fn run_verb(console: &Console, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Profile(args) => profile::run_profile(console, *args),
        Command::Run(args) => run::run_run(console, *args),
        Command::Sweep(args) => sweep::run_sweep_command(console, *args),
        Command::Experiment(args) => experiment::run_experiment(console, *args),
        Command::Tune(args) => tune::run_tune(console, *args),
        Command::Ablate(args) => ablate::run_ablate(console, *args),
        Command::CudaGraphs(args) => cuda_graphs::run_cuda_graphs(console, *args),
        Command::Loadline(args) => loadline::run_loadline(console, *args),
        Command::Estimate(args) => estimate::run(console, *args),
        Command::Compare(args) => compare::run_compare(console, &args),
        Command::Validate(args) => validate::run(console, &args),
        Command::Calibrate(args) => calibrate::run_calibrate(console, &args),
        Command::Report(args) => report::run_report(console, &args),
        Command::Replay(args) => replay::run_replay(console, &args),
        Command::Demo(args) => demo::run_demo(console, &args),
        Command::Derive(args) => derive::run_derive(console, &args),
        Command::Parse(args) => parse::run_parse(console, &args),
        Command::Why(args) => why::run_why(console, &args),
        Command::Doctor(args) => doctor::run_doctor(console, &args),
        Command::Clean(args) => clean::run_clean(console, &args),
        Command::Top(args) => top::run_top(console, &args),
        Command::Watch(args) => watch::run_watch(console, &args),
        Command::Gpus(args) => gpus::run_gpus(console, &args),
        Command::Models(args) => models::run_models(console, &args),
        Command::Record(args) => record::run_record(console, &args),
        Command::Config(args) => config::run_config(console, &args),
        Command::Schema(args) => schema::run_schema(console, &args),
        Command::Completions(args) => man::write_completions(console, &args),
        Command::Man(args) => man::run_man(console, &args),
    }
}

fn console_options(talk: OutputArgs) -> ConsoleOptions {
    let color = match talk.color {
        ColorWhen::Auto => ColorChoice::Auto,
        ColorWhen::Always => ColorChoice::Always,
        ColorWhen::Never => ColorChoice::Never,
    };
    ConsoleOptions {
        quiet: talk.quiet,
        verbose: talk.verbose,
        color,
    }
}
