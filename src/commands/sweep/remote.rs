//! A sweep or a tuning on another machine over ssh: plimsoll runs there, and its results come here.

use super::place::{RunPlace, no_run_in};
use crate::collect::StopSignal;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::store::file_word;
use crate::sweep::folder::{self, REMOTE_FILE};
use crate::sweep::remote::{RemoteHost, RemotePlace};
use crate::sweep::{Folder, remote::UnpackedFiles};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// What is asked for over there.
pub struct RemoteRun<'a> {
    /// Flags of the measurement.
    pub words: Vec<String>,
    /// The file, where there is one.
    pub text: Option<&'a str>,
    /// Whether nothing is to be run.
    pub dry_run: bool,
    /// Whether the results are printed as a document.
    pub json: bool,
    /// How to go on with the run in a folder here.
    pub go_on: &'a (dyn Fn(&Path) -> String + Sync),
}

/// Runs a sweep or a tuning on another machine and fetches its results.
pub async fn run_remotely(
    console: &Console,
    url: &str,
    run: &RunPlace<'_>,
    asked: &RemoteRun<'_>,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let remote = RemoteHost::parse_url(url)?;
    remote.check_version().await?;
    let ask = async |there: Option<&str>| {
        let words = remote_words(run, asked, there);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut data = |bytes: &[u8]| console.write_data(bytes);
        let mut talk = |line: &str| console.print_text(line);
        let input = asked.text.map(str::as_bytes);
        let ended = remote.run_plimsoll(&words, input, (&mut data, &mut talk), stop.token());
        ended.await.map(exit_code)
    };
    if asked.dry_run {
        return Ok(ask(None).await?);
    }
    let (folder, place, is_new) = folder_of(run, &remote)?;
    let here = folder.path().to_owned();
    let ended = ask(Some(&place.folder)).await;
    // Also after an interrupt: what was measured is worth having.
    let token = CancellationToken::new();
    let fetched = remote.fetch_folder(&place.folder, &here, &token).await;
    let go_on = (asked.go_on)(&here);
    let code = ended.map_err(|failure| failure.hint(go_on.clone()))?;
    let fetched = match fetched {
        Ok(fetched) => fetched,
        // It was refused there, with the reason already shown.
        Err(_) if code != ExitCode::Done && remote.lacks_folder(&place.folder).await => {
            if is_new {
                folder.discard_run();
            }
            return Ok(code);
        }
        Err(failure) => return Err(failure.hint(go_on).into()),
    };
    warn_left_out(console, &fetched);
    console.print_note(&format!("results: {}", here.display()));
    if matches!(code, ExitCode::Interrupted | ExitCode::Environment) {
        console.print_note(&go_on);
    }
    Ok(code)
}

/// The folder of this run here and its place there, and whether it begins.
fn folder_of(
    run: &RunPlace<'_>,
    remote: &RemoteHost,
) -> Result<(Folder, RemotePlace, bool), Failure> {
    let now = jiff::Zoned::now();
    let host = format!("ssh://{remote}");
    let earlier = match run.named_folder() {
        _ if !run.goes_on() => None,
        Some(path) => Some(path.clone()),
        None => Some(run.latest_run(|path| {
            let place = RemotePlace::read_file(path).ok().flatten();
            place.is_some_and(|place| place.host == host && place.shard == run.shard)
        })?),
    };
    if let Some(path) = earlier {
        let shown = path.display();
        match RemotePlace::read_file(&path)? {
            Some(place) if place.host == host => {
                return Ok((Folder::open_earlier(&path, &now)?, place, false));
            }
            Some(place) => {
                return Err(Failure::usage(format!(
                    "the run in `{shown}` is on {}, and this is {host}",
                    place.host
                ))
                .hint(format!("--docker-host {} resumes it", place.host))
                .hint(format!(
                    "if that is the same machine by another name: change it in `{shown}/{REMOTE_FILE}`"
                )));
            }
            None if folder::has_journal(&path) => {
                return Err(Failure::usage(format!(
                    "the run in `{shown}` was begun on this machine"
                ))
                .hint("go on with it without --docker-host, or begin a new run"));
            }
            None => return Err(no_run_in(&path)),
        }
    }
    let folder = match run.named_folder() {
        Some(path) => Folder::create_at(path, &now)?,
        None => Folder::create_new(&run.runs, run.name, &now)?,
    };
    // Another run may have a folder of the same name, and must not be gone on with.
    let name = folder.path().file_name().unwrap_or("run".as_ref());
    let place = RemotePlace {
        host,
        folder: format!(
            "plimsoll-results/{}/{}-{}",
            file_word(run.name),
            file_word(&name.to_string_lossy()),
            folder.id()
        ),
        shard: run.shard,
    };
    place.write_file(folder.path())?;
    Ok((folder, place, true))
}

/// What plimsoll is asked for over there.
fn remote_words(run: &RunPlace<'_>, asked: &RemoteRun<'_>, there: Option<&str>) -> Vec<String> {
    let mut words = vec![run.verb.to_owned()];
    words.extend(asked.text.map(|_| "-".to_owned()));
    words.extend(asked.words.iter().cloned());
    words.extend(run.shard.map(|part| format!("--shard={part}")));
    words.extend(there.map(|there| format!("--begin-or-resume={there}")));
    words.extend(asked.dry_run.then(|| "--dry-run".to_owned()));
    words.extend(asked.json.then(|| "--json".to_owned()));
    words
}

/// Warns of files that came and were not taken.
fn warn_left_out(console: &Console, fetched: &UnpackedFiles) {
    for path in &fetched.left_out {
        console.print_warning(&format!("`{path}` was not fetched"));
    }
    if fetched.more_left_out > 0 {
        console.print_warning(&format!(
            "and {} more were not fetched",
            fetched.more_left_out
        ));
    }
}

fn exit_code(code: u8) -> ExitCode {
    let mut known = ExitCode::ALL.iter().map(|(known, _)| *known);
    known
        .find(|known| *known as u8 == code)
        .unwrap_or(ExitCode::Internal)
}
