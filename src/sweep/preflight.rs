//! A look at what a sweep needs, before anything is started: containers, images, engines, models,
//! GPUs, folders to mount, room on the disk.

use super::request::serves_what_is_asked;
use super::schedule::DeviceClaims;
use crate::collect::{self, AttachedEngine, ModelFiles, StopSignal};
use crate::container::Runtime;
use crate::engine::EngineId;
use crate::error::Failure;
use crate::matrix::{CellGroup, EnginePlace, GroupId, SweepPlan};
use crate::preset::Preset;
use crate::telemetry::BackendChoice;
use crate::units::Bytes;
use std::collections::HashSet;
use std::path::Path;

/// A capture and its profile take about this much on the disk, bytes: a minute of one GPU.
const PER_CELL: u64 = 1 << 20;

/// What a look has found.
#[derive(Debug, Default)]
pub struct Preflight {
    /// Why cells of a group cannot be measured: the group, a sentence, and what can be done.
    pub problems: Vec<(GroupId, String, Vec<String>)>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What may go wrong.
    pub warnings: Vec<String>,
}

/// Looks at everything that the groups need.
pub async fn check_needs(
    runtime: &Runtime,
    plan: &SweepPlan,
    choice: BackendChoice,
    results: &Path,
    stop: &StopSignal,
) -> Result<Preflight, Failure> {
    let mut found = Preflight::default();
    let mut seen: HashSet<(String, &str)> = HashSet::new();
    let mut claims = DeviceClaims::new(runtime, choice);
    for group in &plan.groups {
        if stop.stop_reason().is_some() {
            return Err(stop.stop_failure());
        }
        let checked = async {
            claims.claim_of(&group.server.place).await?;
            let EnginePlace::Image(preset) = &group.server.place else {
                let name = group.server.place.place_name();
                let first = seen.insert((name.to_owned(), group.server.model.as_str()));
                return check_container(runtime, plan, group, first, stop, &mut found).await;
            };
            // One image is looked at once, however many groups are on it.
            let key = serde_json::to_string(preset).unwrap_or_default();
            if seen.contains(&(key.clone(), "")) {
                return Ok(());
            }
            image(runtime, preset, group, stop, &mut found).await?;
            seen.insert((key, ""));
            Ok(())
        };
        if let Err(failure) = checked.await {
            let words = failure.to_string();
            found
                .problems
                .push((group.id.clone(), words, failure.hints));
        }
    }
    let cells: usize = plan.groups.iter().map(|g| g.cells.len()).sum();
    let needed = PER_CELL.saturating_mul(cells as u64);
    match free_space(results) {
        Some(free) if free < needed => found.warnings.push(format!(
            "there are {} free for the results, and {cells} cells take about {}",
            Bytes(free),
            Bytes(needed)
        )),
        Some(free) => found
            .notes
            .push(format!("{} free for the results", Bytes(free))),
        None => found
            .warnings
            .push("how much room there is for the results is not known".into()),
    }
    Ok(found)
}

async fn check_container(
    runtime: &Runtime,
    plan: &SweepPlan,
    group: &CellGroup,
    first: bool,
    stop: &StopSignal,
    found: &mut Preflight,
) -> Result<(), Failure> {
    let name = group.server.place.place_name();
    let named = group.server.engine.as_ref();
    let attached = AttachedEngine::find(runtime, name, named, stop).await?;
    let (engine, facts, serves) = (
        attached.engine,
        &attached.found.facts,
        attached.is_serving(),
    );
    if serves && plan.fresh {
        return Err(Failure::usage(format!(
            "container `{name}` serves already, and --fresh loads an engine for each cell"
        ))
        .hint("name an idle container or an image, or leave out --fresh"));
    }
    let note = format!(
        "container `{name}`: {} ({}), {}",
        engine.shown(),
        attached.evidence,
        if serves { "serving" } else { "idle" }
    );
    // One container may serve several models.
    if !found.notes.contains(&note) {
        found.notes.push(note);
    }
    if serves {
        serves_what_is_asked(&group.server, engine, facts)?;
    }
    if !first {
        return Ok(());
    }
    let model = &group.server.model;
    let files = ModelFiles::read_files(runtime, facts, Some(model)).await;
    if let Some(why) = files.error {
        found
            .warnings
            .push(format!("model `{model}` in container `{name}`: {why}"));
    }
    Ok(())
}

/// The engine in an image, which must be here.
pub async fn engine_in_image(
    runtime: &Runtime,
    named: Option<&String>,
    image: &str,
    stop: &StopSignal,
) -> Result<EngineId, Failure> {
    let here = collect::unless_stopped(stop, runtime.image_id(image)).await?;
    if here.is_none() {
        return Err(Failure::environment(format!("image `{image}` is not here"))
            .hint(format!("`docker pull {image}`")));
    }
    collect::engine_of_image(named, image).map_err(|mut failure| {
        if named.is_none() {
            let names = EngineId::all_names();
            failure.hints = vec![format!(
                "name it with the file's key `engine:` (or --engine): {names}"
            )];
        }
        failure
    })
}

async fn image(
    runtime: &Runtime,
    preset: &Preset,
    group: &CellGroup,
    stop: &StopSignal,
    found: &mut Preflight,
) -> Result<(), Failure> {
    let image = group.server.place.place_name();
    let named = group.server.engine.as_ref().or(preset.engine.as_ref());
    let engine = engine_in_image(runtime, named, image, stop).await?;
    for volume in &preset.volumes {
        let source = volume.split(':').next().unwrap_or(volume);
        // Docker would make an empty folder of a path that is not there.
        if source.starts_with('/') && !Path::new(source).exists() {
            return Err(Failure::environment(format!(
                "`{source}` is to be mounted, but does not exist on this host"
            ))
            .hint("create it, or change `volumes`"));
        }
    }
    found
        .notes
        .push(format!("image `{image}`: {}", engine.shown()));
    Ok(())
}

/// Room on the disk of a folder that may not be there yet, bytes.
pub fn free_space(folder: &Path) -> Option<u64> {
    let absolute = std::path::absolute(folder).ok()?;
    let there = absolute.ancestors().find(|f| f.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_known_before_the_folder_is_made() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_space(&dir.path().join("not/yet/there")).is_some_and(|b| b > 0));
    }
}
