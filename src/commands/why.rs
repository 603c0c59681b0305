//! `plimsoll why`: why a container died, loops or hangs, and what to change.

mod checked;
mod container;
mod evidence;
mod watch;

use super::load::run_until_stopped;
use crate::cli::WhyArgs;
use crate::clock::wall_now_ns;
use crate::collect::{EngineTarget, StopSignal};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::engine::diagnosis::{CaseFacts, Diagnosis, EvidenceSource};
use crate::engine::lines::for_each_line;
use crate::engine::recognise;
use crate::error::{ExitCode, Failure};
use crate::redact::Redactor;
use crate::report::why::{WHY_DOCUMENT, WhyDocument, report_of_diagnosis};
use crate::store::{StoredCapture, begins_recording, bounded};
pub use checked::check_advice;
pub use container::{diagnose_container, diagnose_removed, diagnose_stopped_life};
use container::{facts_of, facts_of_inspection};
use evidence::{Evidence, KeptEvidence, is_bundle, read_bundle};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// A log has fewer control characters than one in this many bytes, those for terminals apart.
const MOST_CONTROLS: usize = 50;
/// First bytes of packed files, and what unpacks them.
const PACKED: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
    (b"\xfd7zXZ\0", "xzcat"),
    (b"BZh", "bzcat"),
];
/// What a file of facts is.
const FACTS_ARE: &str =
    "--facts takes what `docker inspect` prints, or JSON with engine, version, gpu and container";
/// Largest file of facts.
const MOST_FACTS: u64 = 1 << 20;
/// A container that Docker restarted within this time may end again.
const JUST_BEGUN_NS: i64 = 60_000_000_000;
/// Label of a container that Compose started.
const PROJECT_LABEL: &str = "com.docker.compose.project";

/// The diagnosis of one container or log by its name, and its evidence where a bundle is asked for.
type NamedDiagnosis = (String, Diagnosis, Option<KeptEvidence>);

pub fn run_why(console: &Console, args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let path = Path::new(args.named());
    if args.watch && path.is_file() {
        let text = format!(
            "`{}` is a file, and --watch waits for a container's death",
            args.named()
        );
        return Err(Failure::usage(text)
            .hint("name a container, or leave --watch out to judge the file")
            .into());
    }
    let is_process = args.process.place().is_some();
    let is_container =
        is_process || args.watch || args.named() != "-" && args.facts.is_none() && !path.exists();
    let mut all = if is_container {
        let mut all = run_until_stopped(console, None, async |stop| {
            diagnose_named(console, args, stop).await
        })?;
        // The start of a process cannot be estimated: how it was started is the daemon's to know.
        for (name, found, _) in all.iter_mut().filter(|_| !is_process) {
            check_advice(console, name, found);
        }
        all
    } else {
        let evidence = match StoredCapture::open(path) {
            Ok(stored) => read_capture(&stored, args.bundle.is_some())?,
            Err(_) if is_bundle(path) => read_bundle(path)?,
            Err(_) => read_log(args)?,
        };
        let (found, kept) = evidence.conclude();
        vec![(args.named().to_owned(), found, kept)]
    };
    let redactor = Redactor::default();
    for line in all.iter_mut().flat_map(|(_, found, _)| &mut found.evidence) {
        line.quote = redactor.redact_text(&line.quote).into_owned();
    }
    if let Some(file) = &args.bundle {
        let [(_, found, Some(kept))] = all.as_slice() else {
            return Err(Failure::usage("--bundle is for one container or log")
                .hint("name one service of the project")
                .into());
        };
        kept.write_bundle(file, found)?;
        console.print_note(&format!(
            "wrote what was read, secrets redacted: {}",
            file.display()
        ));
    }
    if !args.json {
        for (name, found, _) in &all {
            console.print_report(&report_of_diagnosis(name, found))?;
        }
    } else if let [(name, found, _)] = all.as_slice() {
        console.print_json(&WhyDocument {
            document: WHY_DOCUMENT.into(),
            subject: name.clone(),
            diagnosis: found.clone(),
        })?;
    } else {
        let services = all
            .iter()
            .map(|(name, found, _)| json!({"container": name, "diagnosis": found}));
        console.print_json(
            &json!({"project": args.named(), "containers": services.collect::<Vec<_>>()}),
        )?;
    }
    Ok(
        match all.iter().any(|(_, found, _)| found.names_failure()) {
            true => ExitCode::Done,
            false => ExitCode::NoCause,
        },
    )
}

/// Whether a container ends again and again: of such a one there is no profile.
pub fn loops(found: &InspectedContainer) -> bool {
    let state = &found.facts.state;
    let begun = |ns: i64| wall_now_ns().saturating_sub(ns) < JUST_BEGUN_NS;
    state.status == "restarting" || state.restart_count > 0 && state.started_ns.is_some_and(begun)
}

/// Prints why an engine ended, if `when` holds for it.
pub async fn print_why(
    console: &Console,
    runtime: &Runtime,
    target: &EngineTarget,
    when: fn(&InspectedContainer) -> bool,
) {
    let wanted = target.wanted();
    if let Some(found) = runtime.find_any(&wanted).await.ok().filter(when) {
        let (diagnosis, _) = diagnose_container(runtime, &found, false).await;
        // The failure itself is printed whatever becomes of this.
        let _ = console.print_report(&report_of_diagnosis(&wanted, &diagnosis));
    }
}

/// The container of a name or id, those of a Compose project, or one that was removed.
async fn diagnose_named(
    console: &Console,
    args: &WhyArgs,
    stop: &StopSignal,
) -> anyhow::Result<Vec<NamedDiagnosis>> {
    let target = args.process.target(Some(args.named()), &args.log);
    let target = target.unwrap_or_else(|| EngineTarget::of_container(args.named()));
    let (runtime, wanted) = (target.open_runtime(stop).await?, target.wanted());
    let wanted = wanted.as_str();
    let keep = args.bundle.is_some();
    if args.watch {
        return watch::wait_for_death(console, &runtime, wanted, keep, stop).await;
    }
    let unknown = match runtime.find_any(wanted).await {
        Ok(found) => {
            let (diagnosis, kept) = diagnose_container(&runtime, &found, keep).await;
            return Ok(vec![(wanted.to_owned(), diagnosis, kept)]);
        }
        Err(failure) => failure,
    };
    let mut all = Vec::new();
    for service in runtime.list_all().await? {
        if service.labels.get(PROJECT_LABEL).map(String::as_str) != Some(wanted) {
            continue;
        }
        if let Some(found) = runtime.inspect_container(&service.id).await? {
            let (diagnosis, kept) = diagnose_container(&runtime, &found, keep).await;
            all.push((service.name, diagnosis, kept));
        }
    }
    // Failures come last: a terminal shows its end.
    all.sort_by_key(|(_, found, _)| found.names_failure());
    if all.is_empty() {
        let unknown = || unknown.hint("and no file has this name");
        let removed = diagnose_removed(&runtime, wanted).await;
        let removed = removed.ok_or_else(unknown)?;
        all.push((wanted.to_owned(), removed, None));
    }
    Ok(all)
}

fn read_log(args: &WhyArgs) -> anyhow::Result<Evidence> {
    let unreadable = |what: &str| {
        Failure::environment(format!("cannot read `{what}`"))
            .hint("name a log, the folder of a capture, or an archive of `why --bundle`")
    };
    let mut docker_errors = Vec::new();
    let facts = match &args.facts {
        None => CaseFacts::default(),
        Some(file) => {
            let name = file.display().to_string();
            let mut text = String::new();
            (bounded::open_named(file).and_then(|f| f.take(MOST_FACTS).read_to_string(&mut text)))
                .map_err(|e| {
                    Failure::environment(format!("cannot read `{name}`, given as --facts"))
                        .hint(FACTS_ARE)
                        .caused_by(e)
                })?;
            let document: Value = serde_json::from_str(&text).map_err(|e| {
                Failure::usage(format!("`{name}`, given as --facts, is not JSON"))
                    .hint(FACTS_ARE)
                    .caused_by(e)
            })?;
            if document.as_array().is_some_and(|all| all.len() != 1) {
                return Err(Failure::usage(format!(
                    "`{name}`, given as --facts, is not of one container"
                ))
                .hint("`docker inspect NAME > FILE` writes the facts of one")
                .into());
            }
            match InspectedContainer::from_document(&document) {
                Some(container) => {
                    docker_errors = container.docker_errors.clone();
                    facts_of_inspection(&container)
                }
                None => CaseFacts::from_document(&document)
                    .map_err(|e| Failure::usage(format!("`{name}`, given as --facts: {e}")))?,
            }
        }
    };
    if Path::new(args.named()).is_dir() {
        let text = format!("`{}` is a folder without a capture", args.named());
        return Err(Failure::usage(text)
            .hint("name a container, a log, or the folder of a capture")
            .into());
    }
    let mut evidence = Evidence::new(facts, args.bundle.is_some());
    for error in docker_errors {
        evidence.take(EvidenceSource::Docker, error.as_bytes());
    }
    let reader: Box<dyn Read> = if args.named() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = bounded::open_named(Path::new(args.named()));
        Box::new(opened.map_err(|e| unreadable(args.named()).caused_by(e))?)
    };
    let unread = |e| unreadable(args.named()).caused_by(e);
    let mut reader = BufReader::new(reader);
    let first = reader.fill_buf().map_err(unread)?;
    if !first.is_empty() || args.facts.is_none() {
        check_beginning(args.named(), first)?;
    }
    for_each_line(reader, |line| evidence.take(EvidenceSource::Log, line)).map_err(unread)?;
    Ok(evidence)
}

fn shown_log(named: &str) -> String {
    match named {
        "-" => "standard input".to_owned(),
        file => format!("`{file}`"),
    }
}

/// Refuses what is no log by its first bytes: nothing, a packed file, binary data. NUL bytes stand at the beginning of a
/// log that `copytruncate` cut, and in UTF-16.
///
/// # Errors
/// What it is instead of a log, and what to name.
pub(super) fn check_beginning(named: &str, first: &[u8]) -> Result<(), Failure> {
    let name = shown_log(named);
    if first.is_empty() {
        return Err(
            Failure::environment(format!("{name} is empty: nothing was read"))
                .hint("`docker logs NAME > FILE 2>&1` keeps both streams of a container's log"),
        );
    }
    if let Some((_, unpack)) = PACKED.iter().find(|(magic, _)| first.starts_with(magic)) {
        return Err(Failure::usage(format!("{name} is compressed"))
            .hint(format!("unpack it first: `{unpack} {named} > FILE`")));
    }
    let starts_profile = || {
        let head = String::from_utf8_lossy(&first[..first.len().min(4096)]);
        head.starts_with('{') && head.contains("\"profiler_version\"")
    };
    let text = String::from_utf8_lossy(first);
    let is_inspection = text.trim_start().starts_with(['[', '{'])
        && ["\"State\":", "\"RestartCount\":", "\"HostConfig\":"]
            .iter()
            .all(|key| text.contains(key));
    if is_inspection {
        return Err(
            Failure::usage(format!("{name} is what `docker inspect` prints, not a log"))
                .hint("`docker logs NAME 2>&1 | plimsoll why - --facts FILE` reads both"),
        );
    }
    let shown_by = match first {
        recording if begins_recording(recording) => Some("replay"),
        _ => starts_profile().then_some("report"),
    };
    if let Some(verb) = shown_by {
        return Err(
            Failure::usage(format!("{name} is a document of plimsoll, not a log"))
                .hint(format!("`plimsoll {verb} {named}` shows it")),
        );
    }
    let is_control = |byte: &&u8| byte.is_ascii_control() && !b"\0\n\t\r\x08\x1b".contains(byte);
    if first.iter().filter(is_control).count() * MOST_CONTROLS > first.len() {
        return Err(Failure::usage(format!("{name} is binary, not a log"))
            .hint("name a log, the folder of a capture, or an archive of `why --bundle`"));
    }
    Ok(())
}

fn read_capture(stored: &StoredCapture, keep: bool) -> anyhow::Result<Evidence> {
    let capture = &stored.capture;
    let end = capture
        .container_end
        .as_ref()
        .unwrap_or(&capture.container.state);
    let mut facts = facts_of(&capture.container);
    // How it stood at the end of the run is not how it stands.
    if end.status != "running" {
        facts.push(format!("status={}", end.status));
    }
    facts.extend(end.exit_code.map(|code| format!("exit_code={code}")));
    let engine = recognise(&capture.container).map(|(engine, _)| engine);
    let mut evidence = Evidence::new(CaseFacts { engine, facts }, keep);
    for line in stored.read_lines()? {
        evidence.take(EvidenceSource::Log, line.text.as_bytes());
    }
    if let Some(why) = capture.end.failure() {
        evidence.take(EvidenceSource::Docker, why.as_bytes());
    }
    Ok(evidence)
}
