//! What is to be started, from a line, a file or a container.

use crate::bounded::{named_bytes, unreadable_file, unreadable_input};
use crate::cli::EstimateArgs;
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::error::Failure;
use crate::launch::{self, Launch, compose, kubernetes};
use serde_json::Value;
use std::path::Path;

/// Largest file of Compose or Kubernetes, bytes.
const LONGEST: u64 = 4 << 20;

/// The failure for words that start no engine.
pub fn no_engine(launches: &[Launch]) -> Failure {
    if launches.is_empty() {
        return Failure::usage("nothing is given that starts an engine").hint(
            "give its command after `--`, --compose FILE, --manifest FILE or --container NAME",
        );
    }
    let compose = |l: &Launch| {
        let word = |w: &String| w == "compose" || w.ends_with("docker-compose");
        l.image.is_none() && l.argv.iter().take(2).any(word)
    };
    if launches.iter().any(compose) {
        return Failure::usage("the command after -- starts what a Compose file describes")
            .hint("name the file instead: --compose FILE");
    }
    let other = launches.iter().find_map(|l| match l.argv.as_slice() {
        [program, verb, ..] if matches!(program.as_str(), "vllm" | "sglang") => {
            Some((program, verb))
        }
        _ => None,
    });
    if let Some((program, verb)) = other {
        return Failure::usage(format!("`{program} {verb}` starts no server"))
            .hint(format!("`{program} serve MODEL` does"));
    }
    let images: Vec<&str> = launches.iter().filter_map(|l| l.image.as_deref()).collect();
    let what = match images.as_slice() {
        [] => "the command after -- starts no engine that is known".to_owned(),
        images => format!("no engine is known in `{}`", images.join("`, `")),
    };
    Failure::usage(what).hint(
        "as in `plimsoll estimate --gpu H100 -- vllm serve Qwen/Qwen3-8B -tp 2`, or `-- docker run …`",
    )
}

/// All that the flags name; none where they name no command.
///
/// # Errors
/// A file or container that cannot be read.
pub fn read_launches(args: &EstimateArgs) -> Result<Vec<Launch>, Failure> {
    if let Some(file) = &args.compose {
        let mut services = read_compose(file)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        for service in &mut services {
            service.read_flag_file(&|name| read_text(&folder.join(name)).ok());
        }
        return Ok(services);
    }
    if let Some(file) = &args.manifest {
        let containers = kubernetes::read_manifest(&read_text(file)?);
        return containers.map_err(|why| unusable(file, &why));
    }
    if let Some(name) = &args.container {
        return Ok(vec![Launch::of_facts(find_container(name)?.facts)]);
    }
    if args.words.is_empty() {
        return Ok(Vec::new());
    }
    let mut line = read_line(&args.words);
    line.read_flag_file(&|file| read_text(Path::new(file)).ok());
    Ok(vec![line])
}

/// What a line starts, with the variables of the files that it names.
pub fn read_line(words: &[String]) -> Launch {
    let mut launch = launch::read_line(words);
    launch.read_env_files(&|file| read_text(Path::new(file)).ok());
    launch
}

/// The services of a Compose file.
///
/// # Errors
/// It cannot be read.
pub fn read_compose(file: &Path) -> Result<Vec<Launch>, Failure> {
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let folder = std::path::absolute(file).map_err(|e| unreadable_file(file, e))?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let open = |name: &str| read_text(&folder.join(name)).ok();
    let services = compose::read_services(&read_text(file)?, &env.collect(), folder, &open);
    services.map_err(|why| unusable(file, &why))
}

/// The one to answer for; `None` where there is none.
///
/// # Errors
/// Several start an engine, or the named one is not there.
pub fn choose<'a>(
    launches: &'a [Launch],
    args: &EstimateArgs,
) -> Result<Option<&'a Launch>, Failure> {
    let chosen = engines_of(launches, &args.service)?;
    match chosen.as_slice() {
        [] if launches.is_empty() => Ok(None),
        [] => Err(no_engine(launches)),
        [one] => Ok(Some(one)),
        several => Err(Failure::usage(format!(
            "{} services start an engine: {}",
            several.len(),
            names(several)
        ))
        .hint("name one with --service")),
    }
}

/// The document of `--show-settings`: an object, or a list of them where several services start an engine.
///
/// # Errors
/// As [`read_launches`]; or none starts an engine.
pub fn show_settings(args: &EstimateArgs) -> Result<Value, Failure> {
    let launches = read_launches(args)?;
    let chosen = engines_of(&launches, &args.service)?;
    let mut all: Vec<Value> = chosen.iter().filter_map(|l| l.shown()).collect();
    match all.len() {
        0 => Err(no_engine(&launches)),
        1 => Ok(all.remove(0)),
        _ => Ok(Value::Array(all)),
    }
}

/// Those that start an engine, or that are named.
///
/// # Errors
/// A named one is not there.
pub fn engines_of<'a>(
    launches: &'a [Launch],
    services: &[String],
) -> Result<Vec<&'a Launch>, Failure> {
    let own = |name: &String| launches.iter().find(|l| l.service.as_ref() == Some(name));
    if let Some(missing) = services.iter().find(|name| own(name).is_none()) {
        if !launches.iter().any(|l| l.service.is_some()) {
            let what = format!("--service {missing} names a service of a file, and none is given");
            return Err(Failure::usage(what).hint("add --compose FILE or --manifest FILE"));
        }
        return Err(
            Failure::usage(format!("no service `{missing}`")).hint(format!(
                "there are: {}",
                names(&launches.iter().collect::<Vec<_>>())
            )),
        );
    }
    if !services.is_empty() {
        return Ok(services.iter().filter_map(own).collect());
    }
    Ok(launches.iter().filter(|l| l.server().is_some()).collect())
}

fn names(launches: &[&Launch]) -> String {
    let names: Vec<&str> = launches
        .iter()
        .filter_map(|l| l.service.as_deref())
        .collect();
    names.join(", ")
}

fn read_text(file: &Path) -> Result<String, Failure> {
    let bytes = named_bytes(file, LONGEST).map_err(|e| unreadable_input(file, e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unusable(file: &Path, why: &str) -> Failure {
    Failure::usage(format!(
        "`{}` cannot be read as a Compose file or manifest: {why}",
        file.display()
    ))
}

/// A container of this host, in any state.
///
/// # Errors
/// There is none of this name, or no daemon.
pub fn find_container(name: &str) -> Result<InspectedContainer, Failure> {
    let find = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|e| {
            Failure::environment("the thread that asks Docker cannot be started")
                .hint("the system may be out of files or processes: `ulimit -a` shows the limits")
                .caused_by(e)
        })?;
        runtime.block_on(async { Runtime::connect().await?.find_any(name).await })
    };
    // A thread of its own: the caller may be within a runtime.
    let found = std::thread::scope(|scope| scope.spawn(find).join());
    found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
