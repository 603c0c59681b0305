//! What a tuning chooses among: the servers of a sweep file, or of `--set` for a container or an image; and whether
//! they can be measured at all.

use crate::cli::{HEALTH_TIMEOUT, STARTING, TuneArgs, flags_under_headings};
use crate::collect::{AttachedEngine, StopSignal, engine_of_image};
use crate::commands::config::{parse_sweep_text, read_sweep_text};
use crate::commands::experiment::target::resolve_target;
use crate::console::Console;
use crate::container::Runtime;
use crate::engine::{EngineId, LoadKind};
use crate::error::Failure;
use crate::loadline::TokenLengths;
use crate::matrix::{BenchWord, Cell, EnginePlace, ServerConfig, vary_settings};
use crate::store::file_word;
use crate::tune::{SettingSpace, TuningLimits, objective_key, settings_of_server};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Headings of flags that say how an engine is started, which a file does for itself.
const START_HEADINGS: [&str; 2] = [STARTING, "Engine settings"];
/// Further flags of which a file has its own.
const OWN_OF_A_FILE: [&str; 5] = ["set", "model", "engine", "input-len", "gen-toks"];

/// Default numbers of concurrent requests.
const LEVELS: [u32; 3] = [4, 16, 64];

/// The candidates, and the loads that they are put under.
pub struct TuningChoice {
    /// Names the folder.
    pub name: String,
    /// The file, where there is one.
    pub text: Option<String>,
    /// One for each candidate.
    pub servers: Vec<Arc<ServerConfig>>,
    /// What differs among them.
    pub space: SettingSpace,
    /// Concurrent requests, from few to many.
    pub levels: Vec<u32>,
    /// Length of every request.
    pub lengths: TokenLengths,
}

/// Reads what the flags name and checks it, so that an error is reported before anything starts. Without a runtime only
/// a file can be read, and its engines are not looked at.
pub async fn read_choice(
    console: &Console,
    args: &TuneArgs,
    limits: &TuningLimits,
    runtime: Option<&Runtime>,
    stop: &StopSignal,
) -> Result<TuningChoice, Failure> {
    if args.flags.bench != BenchWord::Builtin {
        return Err(unmeasured_limits("this bench", limits));
    }
    let ((name, servers, levels, lengths), text) = match (named_file(args), runtime) {
        (Some(file), _) => {
            let text = read_sweep_text(&file)?;
            (read_file(&file, &text, limits)?, Some(text))
        }
        (None, Some(runtime)) => {
            let (name, servers) = vary_target(console, args, limits, runtime, stop).await?;
            let lengths = TokenLengths {
                input: args.input_len.into(),
                output: args.flags.gen_toks.into(),
            };
            ((name, servers, LEVELS.to_vec(), lengths), None)
        }
        (None, None) => {
            return Err(Failure::usage(
                "--submit and --docker-host take the settings of a sweep file",
            )
            .hint("write the values of --set as lists under engine_args in a file"));
        }
    };
    let levels: BTreeSet<u32> = match args.concurrency.as_slice() {
        [] => levels.into_iter().collect(),
        asked => asked.iter().copied().collect(),
    };
    if servers.len() < 2 {
        return Err(Failure::usage(
            "there is one combination of settings: nothing to choose among",
        )
        .hint("give a setting several values: --set max-num-seqs=16,64, or lists in the file"));
    }
    if let Some(runtime) = runtime {
        check_engines(&servers, limits, runtime, stop).await?;
    }
    let settings = servers
        .iter()
        .map(|server| settings_of_server(&server.redacted()));
    Ok(TuningChoice {
        name,
        text,
        space: SettingSpace::of_candidates(&settings.collect::<Vec<_>>()),
        servers,
        levels: levels.into_iter().collect(),
        lengths,
    })
}

/// The sweep file that is named: an existing one, or a name that only a file has.
pub fn named_file(args: &TuneArgs) -> Option<PathBuf> {
    let path = PathBuf::from(args.flags.container.as_ref()?);
    let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
    (yaml || path.is_file() || path == Path::new("-")).then_some(path)
}

type FileChoice = (String, Vec<Arc<ServerConfig>>, Vec<u32>, TokenLengths);

/// The settings and loads of a sweep file.
fn read_file(file: &Path, text: &str, limits: &TuningLimits) -> Result<FileChoice, Failure> {
    let of_others = flags_under_headings(std::env::args_os(), &START_HEADINGS, &OWN_OF_A_FILE);
    if let Some(flag) = of_others.iter().find(|flag| *flag != HEALTH_TIMEOUT) {
        return Err(Failure::usage(format!(
            "{flag} is for a container or an image, and a file is named"
        ))
        .hint("write it in the file; a setting may have a list of values there"));
    }
    let sweep = parse_sweep_text(file, text)?;
    let loads = || sweep.cells.iter().map(|cell| &cell.load);
    let own_bench = |word| !matches!(word, BenchWord::Auto | BenchWord::Builtin);
    if let Some(load) = loads().find(|load| own_bench(load.bench)) {
        let bench = format!("bench {}", load.bench.as_str());
        return Err(unmeasured_limits(&bench, limits));
    }
    let lengths: HashSet<(u32, u32)> = loads().map(|l| (l.input_len, l.output_len)).collect();
    let Some((input, output)) = lengths.iter().next().filter(|_| lengths.len() == 1) else {
        return Err(Failure::usage(format!(
            "`{}` has loads of {} lengths: settings are compared under one",
            file.display(),
            lengths.len()
        ))
        .hint("give input_len and output_len one value each"));
    };
    if loads().any(|load| load.request_rate.is_some()) {
        return Err(Failure::usage(
            "settings are compared at fixed concurrency, and the file has a request_rate",
        )
        .hint("batch_sizes are the concurrent requests of the loads"));
    }
    let batches: BTreeSet<u32> = loads().filter_map(|load| load.batch_size).collect();
    let mut groups = HashSet::new();
    let first = |cell: &&Cell| groups.insert(cell.group.clone());
    let servers = sweep
        .cells
        .iter()
        .filter(first)
        .map(|cell| cell.server.clone());
    let lengths = TokenLengths {
        input: u64::from(*input),
        output: u64::from(*output),
    };
    // A file without loads has one of a single request, which shows little.
    let levels = match batches.into_iter().collect::<Vec<u32>>() {
        single if single == [1] => LEVELS.to_vec(),
        several => several,
    };
    Ok((sweep.name.clone(), servers.collect(), levels, lengths))
}

/// The combinations of `--set`, for a container or an image.
async fn vary_target(
    console: &Console,
    args: &TuneArgs,
    limits: &TuningLimits,
    runtime: &Runtime,
    stop: &StopSignal,
) -> Result<(String, Vec<Arc<ServerConfig>>), Failure> {
    if args.set.is_empty() {
        return Err(Failure::usage("no settings to choose among")
            .hint("give each several values: --set max-num-seqs=16,64")
            .hint("or name a sweep file: its settings are the choice"));
    }
    let target = resolve_target(console, &args.flags, runtime, stop).await?;
    if target.fresh {
        return Err(unmeasured_limits(
            "the probe of an engine without a server",
            limits,
        ));
    }
    let name = match &target.server.place {
        EnginePlace::Container(name) => file_word(name),
        EnginePlace::Image(_) => file_word(&target.server.model),
    };
    let servers = vary_settings(&target.server, &args.set)?;
    Ok((name, servers.into_iter().map(Arc::new).collect()))
}

/// Refuses engines that serve already, and those that no client can measure.
async fn check_engines(
    servers: &[Arc<ServerConfig>],
    limits: &TuningLimits,
    runtime: &Runtime,
    stop: &StopSignal,
) -> Result<(), Failure> {
    let mut checked: Vec<&EnginePlace> = Vec::new();
    for server in servers {
        if checked.contains(&&server.place) {
            continue;
        }
        checked.push(&server.place);
        let named = server.engine.as_ref();
        let engine: EngineId = match &server.place {
            EnginePlace::Container(name) => {
                let attached = AttachedEngine::find(runtime, name, named, stop).await?;
                if attached.is_serving() {
                    return Err(Failure::usage(format!(
                        "container `{name}` serves already: its settings cannot be changed"
                    ))
                    .hint("name an idle container of the same image, as in `docker run -d --entrypoint sleep IMAGE infinity`")
                    .hint("or have a container started for each combination: --image IMAGE --model MODEL"));
                }
                attached.engine
            }
            EnginePlace::Image(preset) => {
                engine_of_image(named.or(preset.engine.as_ref()), server.place.place_name())?
            }
        };
        if engine.default_bench(true) == LoadKind::Probe {
            let bench = format!("the probe of engine {}", engine.shown());
            return Err(unmeasured_limits(&bench, limits));
        }
    }
    Ok(())
}

/// The refusal of a bench that cannot measure what is asked for.
fn unmeasured_limits(bench: &str, limits: &TuningLimits) -> Failure {
    let asked = limits.objectives.0.iter().map(objective_key);
    let asked: Vec<String> = asked.collect();
    let message = match asked.as_slice() {
        [] => format!(
            "{bench} sends no concurrent requests to a server: its settings cannot be compared"
        ),
        asked => format!("{bench} does not measure {}", asked.join(", ")),
    };
    Failure::usage(message).hint(
        "leave the bench out: plimsoll's own client measures each request of an engine that serves",
    )
}
