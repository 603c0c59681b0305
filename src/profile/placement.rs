//! Which device holds which rank of an engine.

use super::series::Series;
use crate::capture::{Capture, DeviceFacts, DeviceKind};
use crate::engine::ServerSettings;

/// The variable by which CUDA chooses among the GPUs that a container has.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices in the order of the ranks on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Told, or all that is possible.
    Known(Vec<u32>),
    /// Nothing tells.
    Unknown,
}

impl Placement {
    /// By [`VISIBLE`]; without it a rank each where there are as many devices, else the devices
    /// that hold the container's processes where there are as many of these.
    pub fn of(
        capture: &Capture,
        settings: &ServerSettings,
        series: &Series,
        ranks: u64,
    ) -> Placement {
        let gpus: Vec<&DeviceFacts> = capture
            .devices
            .iter()
            .filter(|d| d.kind == DeviceKind::Gpu)
            .collect();
        let visible = settings
            .values
            .get(VISIBLE)
            .or_else(|| capture.container.env.get(VISIBLE))
            .filter(|list| !list.trim().is_empty());
        let as_many = |devices: &Vec<u32>| devices.len() as u64 == ranks;
        let all = || gpus.iter().map(|d| d.index).collect::<Vec<u32>>();
        let told = match visible {
            // The engine takes the first ones.
            Some(list) => visible_devices(list, &gpus)
                .filter(|devices| devices.len() as u64 >= ranks)
                .map(|devices| devices.into_iter().take(ranks as usize).collect()),
            None => Some(all()).filter(as_many),
        };
        told.or_else(|| Some(occupied(&gpus, series)).filter(as_many))
            .map_or(Placement::Unknown, Placement::Known)
    }

    /// The rank on a device. Where nothing tells, the one whose number it has.
    pub fn rank_on(&self, device: u32) -> Option<usize> {
        match self {
            Placement::Known(devices) => devices.iter().position(|d| *d == device),
            Placement::Unknown => Some(device as usize),
        }
    }
}

/// The devices that a list names, by place or by the beginning of their UUID; `None` where it
/// names something else, such as a slice of a GPU.
fn visible_devices(list: &str, gpus: &[&DeviceFacts]) -> Option<Vec<u32>> {
    let device = |name: &str| match name.parse::<usize>() {
        Ok(place) => gpus.get(place).map(|d| d.index),
        Err(_) => gpus
            .iter()
            .find(|d| name.starts_with("GPU-") && d.id.starts_with(name))
            .map(|d| d.index),
    };
    list.split(',').map(|name| device(name.trim())).collect()
}

/// The devices on which a process of the container was seen.
fn occupied(gpus: &[&DeviceFacts], series: &Series) -> Vec<u32> {
    gpus.iter()
        .map(|d| d.index)
        .filter(|index| {
            series
                .device(*index as usize)
                .iter()
                .filter_map(|s| s.processes.as_ref())
                .flatten()
                .any(|p| p.ours == Some(true))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{MemorySample, ProcessMemory};

    fn place(visible: Option<&str>, occupied: &[u32], ranks: u64) -> Placement {
        let mut capture = Capture {
            devices: (0..4)
                .map(|index| DeviceFacts {
                    index,
                    kind: DeviceKind::Gpu,
                    id: format!("GPU-{index}{index}-ab"),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let variable = visible.map(|v| (VISIBLE.to_owned(), v.to_owned()));
        capture.container.env.extend(variable);
        let series = Series::new((0..4).map(|device| MemorySample {
            device,
            processes: Some(vec![ProcessMemory {
                pid: 1,
                ours: Some(occupied.contains(&device)),
                ..Default::default()
            }]),
            ..Default::default()
        }));
        Placement::of(&capture, &ServerSettings::default(), &series, ranks)
    }

    #[test]
    fn the_variable_tells_else_the_processes() {
        let known = |devices: &[u32]| Placement::Known(devices.to_vec());
        assert_eq!(place(Some("2,3"), &[], 2), known(&[2, 3]));
        assert_eq!(place(Some("3, 1,0"), &[], 2), known(&[3, 1]));
        assert_eq!(place(Some("GPU-33,GPU-0"), &[], 2), known(&[3, 0]));
        assert_eq!(place(None, &[], 4), known(&[0, 1, 2, 3]));
        assert_eq!(place(None, &[1, 2], 2), known(&[1, 2]));
        assert_eq!(place(Some(""), &[1], 1), known(&[1]));
        // A list that names no device of ours, or too few, does not tell.
        for list in ["7", "MIG-1/2/3", "-1", "0"] {
            assert_eq!(place(Some(list), &[], 2), Placement::Unknown, "{list}");
            assert_eq!(place(Some(list), &[2, 3], 2), known(&[2, 3]), "{list}");
        }
        assert_eq!(place(None, &[0, 1, 2], 2), Placement::Unknown);
        assert_eq!(place(None, &[], 8), Placement::Unknown);
    }

    #[test]
    fn a_device_beside_the_ranks_holds_none() {
        let placement = place(Some("2,3"), &[], 2);
        let ranks = [0, 1, 2, 3].map(|d| placement.rank_on(d));
        assert_eq!(ranks, [None, None, Some(0), Some(1)]);
    }
}
