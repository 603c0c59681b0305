//! What ran out of memory, and what follows of it for other cells of the same group.

use super::cell::{Cell, CellId, CellLoad, GroupId};
use super::row::CellRow;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A cell that ran out of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OomRecord {
    /// Its group: it does not apply to another server configuration.
    pub group: GroupId,
    /// Its load.
    pub load: CellLoad,
    /// The cell.
    pub cell: CellId,
    /// When, RFC 3339, UTC.
    pub when: String,
    /// Memory of the devices it ran on, bytes in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_total_bytes: Option<u64>,
    /// Limit of the container that was reached, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The engine's message; a sentence.
    pub message: String,
}

impl OomRecord {
    /// The record of a cell with such a row.
    pub fn of_row(cell: &Cell, row: &CellRow) -> OomRecord {
        OomRecord {
            group: cell.group.clone(),
            load: cell.load.clone(),
            cell: cell.id.clone(),
            when: row.ended.clone(),
            device_total_bytes: None,
            limit_bytes: row.figures.limit_reached_bytes,
            message: row.message.clone().unwrap_or_default(),
        }
    }
}

/// What is known to run out of memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OomMemory {
    groups: HashMap<GroupId, Vec<OomRecord>>,
}

impl OomMemory {
    /// Adds a cell that ran out of memory.
    pub fn add_record(&mut self, record: OomRecord) {
        self.groups
            .entry(record.group.clone())
            .or_default()
            .push(record);
    }

    /// Takes back what a load that fitted proves wrong. Returns whether there was any.
    pub fn forget_fitted(&mut self, group: &GroupId, load: &CellLoad) -> bool {
        let Some(records) = self.groups.get_mut(group) else {
            return false;
        };
        let before = records.len();
        records.retain(|record| !load.at_least(&record.load));
        records.len() < before
    }

    /// All of it, in no order.
    pub fn records(&self) -> impl Iterator<Item = &OomRecord> {
        self.groups.values().flatten()
    }

    /// Without the records that `leave` names.
    pub fn without_records(mut self, leave: impl Fn(&OomRecord) -> bool) -> OomMemory {
        self.groups
            .values_mut()
            .for_each(|g| g.retain(|r| !leave(r)));
        self
    }

    /// The first record with a load that this cell is no smaller than.
    pub fn record_covering(&self, cell: &Cell) -> Option<&OomRecord> {
        let records = self.groups.get(&cell.group)?;
        records.iter().find(|r| cell.load.at_least(&r.load))
    }

    /// Without what was learnt on devices of another size, or within a smaller limit than the group's
    /// container has now; what is not known counts as the same.
    pub fn on_devices_of(
        self,
        total_bytes: Option<u64>,
        limits: &HashMap<GroupId, u64>,
    ) -> OomMemory {
        self.without_records(|record| {
            let moved = record.device_total_bytes.zip(total_bytes);
            let limit = record.limit_bytes.zip(limits.get(&record.group).copied());
            moved.is_some_and(|(then, now)| then != now)
                || limit.is_some_and(|(then, now)| then < now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{cell, record};
    use super::*;

    #[test]
    fn a_lack_of_memory_speaks_for_larger_cells_of_its_group_only() {
        let mut ooms = OomMemory::default();
        ooms.add_record(record(&cell("m", 256, 128, 8)));
        for (model, input, output, batch, covered) in [
            ("m", 256, 128, 8, true),
            ("m", 512, 128, 16, true),
            ("m", 256, 128, 4, false),
            ("m", 512, 64, 8, false),
            ("n", 512, 128, 16, false),
        ] {
            let cell = cell(model, input, output, batch);
            assert_eq!(
                ooms.record_covering(&cell).is_some(),
                covered,
                "{}",
                cell.describe_load()
            );
        }
    }

    #[test]
    fn what_fitted_later_is_not_held_against_a_cell() {
        let mut ooms = OomMemory::default();
        let (small, large) = (cell("m", 256, 128, 8), cell("m", 256, 128, 32));
        ooms.add_record(record(&small));
        ooms.add_record(record(&large));
        let between = cell("m", 256, 128, 16);
        assert!(ooms.forget_fitted(&between.group, &between.load));
        assert_eq!(ooms.record_covering(&between), None);
        assert!(
            ooms.record_covering(&large).is_some(),
            "more than what fitted"
        );
        assert!(!ooms.forget_fitted(&between.group, &between.load));
    }

    #[test]
    fn other_devices_start_anew() {
        let one = cell("m", 1, 1, 1);
        let mut ooms = OomMemory::default();
        ooms.add_record(OomRecord {
            device_total_bytes: Some(80),
            ..record(&one)
        });
        let after = |ooms: &OomMemory, total, limit: Option<u64>| {
            let limits = limit.map(|limit| (one.group.clone(), limit));
            let now = ooms
                .clone()
                .on_devices_of(total, &limits.into_iter().collect());
            now.record_covering(&one).is_some()
        };
        assert!(after(&ooms, Some(80), None) && after(&ooms, None, None));
        assert!(!after(&ooms, Some(141), None));

        let mut limited = OomMemory::default();
        limited.add_record(OomRecord {
            limit_bytes: Some(256),
            ..record(&one)
        });
        for (limit, known) in [
            (None, true),
            (Some(128), true),
            (Some(256), true),
            (Some(512), false),
            (Some(u64::MAX), false),
        ] {
            assert_eq!(after(&limited, Some(80), limit), known, "{limit:?}");
        }
    }
}
