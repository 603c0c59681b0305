//! The configuration that was run, resolved: every cell with all that it means, for people.

use super::cell::{Cell, CellId, CellLoad, GroupId, ServerConfig};
use serde::Serialize;

#[derive(Serialize)]
struct Resolved<'a> {
    name: &'a str,
    groups: Vec<ResolvedGroup<'a>>,
}

#[derive(Serialize)]
struct ResolvedGroup<'a> {
    id: &'a GroupId,
    #[serde(flatten)]
    server: &'a ServerConfig,
    cells: Vec<ResolvedCell<'a>>,
}

#[derive(Serialize)]
struct ResolvedCell<'a> {
    id: &'a CellId,
    #[serde(flatten)]
    load: &'a CellLoad,
}

/// The cells of a sweep as YAML, grouped as they share an engine. To be given cells without
/// secrets.
pub fn resolved_yaml(name: &str, cells: &[Cell]) -> Result<String, serde_yaml::Error> {
    let mut groups: Vec<ResolvedGroup<'_>> = Vec::new();
    for cell in cells {
        let resolved = ResolvedCell {
            id: &cell.id,
            load: &cell.load,
        };
        // Cells of a group stand together.
        match groups.last_mut().filter(|g| *g.id == cell.group) {
            Some(group) => group.cells.push(resolved),
            None => groups.push(ResolvedGroup {
                id: &cell.group,
                server: &cell.server,
                cells: vec![resolved],
            }),
        }
    }
    let yaml = serde_yaml::to_string(&Resolved { name, groups })?;
    Ok(format!(
        "# What `plimsoll sweep` ran, with every variable and default filled in. Not a sweep file.\n{yaml}"
    ))
}
