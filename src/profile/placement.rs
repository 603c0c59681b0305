//! Which device holds which rank of an engine.

use super::series::SampleSeries;
use crate::capture::{Capture, DeviceFacts, DeviceKind};
use crate::engine::ServerSettings;

/// The variable by which CUDA chooses among the GPUs that a container has.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable by which CUDA numbers them. Without it the fastest comes first; as the driver
/// lists them, which is the order of the devices here, they are numbered by `PCI_BUS_ID` only.
const ORDER: &str = "CUDA_DEVICE_ORDER";

/// The devices in the order of the ranks on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Configured, or the only possibility.
    Known(Vec<u32>),
    /// Unknown.
    Unknown,
}

impl Placement {
    /// By [`VISIBLE`]; without it a rank each where there are as many devices, else the devices
    /// that hold the container's processes where there are as many of these.
    pub fn place_ranks(
        capture: &Capture,
        settings: &ServerSettings,
        series: &SampleSeries,
        ranks: u64,
    ) -> Placement {
        let gpus = measured_gpus(capture);
        let open = numbers_are_open(capture, settings);
        let as_many = |devices: &Vec<u32>| devices.len() as u64 == ranks;
        // Among GPUs of one model CUDA keeps the driver's order; one alone has no order.
        let ordered = |devices: &Vec<u32>| {
            let of = |index: &u32| gpus.iter().find(|d| d.index == *index);
            !open || !differ(devices.iter().filter_map(of))
        };
        let all = || gpus.iter().map(|d| d.index).collect::<Vec<u32>>();
        let visible = environment_variable(capture, settings, VISIBLE);
        // Whatever the numbers mean, rising ones keep the order.
        let rising = visible.is_none_or(|list| ranks < 2 || !open || rises(list));
        let assigned = match visible {
            // Which one a number means is not known then.
            Some(list) if open && has_numbers(list) => None,
            // The engine takes the first ones.
            Some(list) => visible_devices(list, &gpus)
                .filter(|devices| devices.len() as u64 >= ranks)
                .map(|devices| devices.into_iter().take(ranks as usize).collect()),
            None => Some(all()).filter(as_many).filter(ordered),
        };
        let occupied = || Some(occupied(&gpus, series)).filter(|_| rising);
        assigned
            .or_else(|| occupied().filter(as_many).filter(ordered))
            .map_or(Placement::Unknown, Placement::Known)
    }

    /// The rank on a device. Where it is unknown, the rank with the device's number.
    pub fn rank_on(&self, device: u32) -> Option<usize> {
        match self {
            Placement::Known(devices) => devices.iter().position(|d| *d == device),
            Placement::Unknown => Some(device as usize),
        }
    }
}

/// Whether CUDA may number the GPUs otherwise than the driver lists them: they are of different
/// models, and the order need not be the driver's.
pub fn numbers_are_open(capture: &Capture, settings: &ServerSettings) -> bool {
    let order = environment_variable(capture, settings, ORDER);
    let pinned = order.is_some_and(|o| o.trim() == "PCI_BUS_ID");
    // CUDA's GPUs are called so by NVML; others are numbered by their own drivers' rules.
    let cuda = measured_gpus(capture)
        .into_iter()
        .filter(|d| d.id.starts_with("GPU-"));
    !pinned && differ(cuda.collect::<Vec<_>>().iter())
}

fn measured_gpus(capture: &Capture) -> Vec<&DeviceFacts> {
    let gpu = |d: &&DeviceFacts| d.kind == DeviceKind::Gpu;
    capture.devices.iter().filter(gpu).collect()
}

fn differ<'a>(mut gpus: impl Iterator<Item = &'a &'a DeviceFacts>) -> bool {
    let first = gpus.next();
    first.is_some_and(|first| gpus.any(|d| d.name != first.name))
}

/// A variable of the engine's environment: its command's, else its container's.
fn environment_variable<'a>(
    capture: &'a Capture,
    settings: &'a ServerSettings,
    name: &str,
) -> Option<&'a String> {
    let asked = settings.values.get(name);
    asked
        .or_else(|| capture.container.env.get(name))
        .filter(|value| !value.trim().is_empty())
}

/// Whether a list is of numbers that rise.
fn rises(list: &str) -> bool {
    let numbers: Option<Vec<u32>> = list.split(',').map(|n| n.trim().parse().ok()).collect();
    numbers.is_some_and(|n| n.is_sorted())
}

/// Whether a list names a device by number.
fn has_numbers(list: &str) -> bool {
    list.split(',')
        .any(|name| name.trim().parse::<u32>().is_ok())
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
fn occupied(gpus: &[&DeviceFacts], series: &SampleSeries) -> Vec<u32> {
    gpus.iter()
        .map(|d| d.index)
        .filter(|index| {
            series
                .rows_of_device(*index as usize)
                .process_lists()
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
        place_on([""; 4], visible, None, occupied, ranks)
    }

    fn place_on(
        models: [&str; 4],
        visible: Option<&str>,
        order: Option<&str>,
        occupied: &[u32],
        ranks: u64,
    ) -> Placement {
        let mut capture = Capture {
            devices: (0..4)
                .map(|index| DeviceFacts {
                    index,
                    kind: DeviceKind::Gpu,
                    id: format!("GPU-{index}{index}-ab"),
                    name: models[index as usize].into(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let variable = visible.map(|v| (VISIBLE.to_owned(), v.to_owned()));
        capture.container.env.extend(variable);
        let order = order.map(|o| (ORDER.to_owned(), o.to_owned()));
        capture.container.env.extend(order);
        let series = SampleSeries::new((0..4).map(|device| MemorySample {
            device,
            processes: Some(vec![ProcessMemory {
                pid: 1,
                ours: Some(occupied.contains(&device)),
                ..Default::default()
            }]),
            ..Default::default()
        }));
        Placement::place_ranks(&capture, &ServerSettings::default(), &series, ranks)
    }

    #[test]
    fn the_variable_decides_else_the_processes() {
        let known = |devices: &[u32]| Placement::Known(devices.to_vec());
        assert_eq!(place(Some("2,3"), &[], 2), known(&[2, 3]));
        assert_eq!(place(Some("3, 1,0"), &[], 2), known(&[3, 1]));
        assert_eq!(place(Some("GPU-33,GPU-0"), &[], 2), known(&[3, 0]));
        assert_eq!(place(None, &[], 4), known(&[0, 1, 2, 3]));
        assert_eq!(place(None, &[1, 2], 2), known(&[1, 2]));
        assert_eq!(place(Some(""), &[1], 1), known(&[1]));
        // A list that names no device of ours, or too few, decides nothing.
        for list in ["7", "MIG-1/2/3", "-1", "0"] {
            assert_eq!(place(Some(list), &[], 2), Placement::Unknown, "{list}");
            assert_eq!(place(Some(list), &[2, 3], 2), known(&[2, 3]), "{list}");
        }
        assert_eq!(place(None, &[0, 1, 2], 2), Placement::Unknown);
        assert_eq!(place(None, &[], 8), Placement::Unknown);
    }

    #[test]
    fn a_number_among_different_models_means_nothing_unless_the_order_is_the_drivers() {
        let mixed = ["NVIDIA L4", "NVIDIA L4", "NVIDIA H100", "NVIDIA H100"];
        let known = |devices: &[u32]| Placement::Known(devices.to_vec());
        let place = |visible, order, occupied: &[u32], ranks| {
            place_on(mixed, visible, order, occupied, ranks)
        };
        // CUDA's 0 may be the H100.
        assert_eq!(place(Some("0"), None, &[], 1), Placement::Unknown);
        assert_eq!(
            place(Some("0,1"), Some("FASTEST_FIRST"), &[], 2),
            Placement::Unknown
        );
        assert_eq!(place(None, None, &[0, 1, 2, 3], 4), Placement::Unknown);
        // Pinned, by name, or by where the container's processes are.
        assert_eq!(place(Some("0"), Some("PCI_BUS_ID"), &[], 1), known(&[0]));
        assert_eq!(
            place(None, Some("PCI_BUS_ID"), &[], 4),
            known(&[0, 1, 2, 3])
        );
        assert_eq!(place(Some("GPU-22,GPU-00"), None, &[], 2), known(&[2, 0]));
        assert_eq!(place(Some("0"), None, &[2], 1), known(&[2]));
        assert_eq!(place(Some("0,1"), None, &[2, 3], 2), known(&[2, 3]));
        assert_eq!(place(Some("1,0"), None, &[2, 3], 2), Placement::Unknown);
        assert_eq!(place(Some("0,2"), None, &[1, 2], 2), Placement::Unknown);
    }

    #[test]
    fn a_device_beside_the_ranks_holds_none() {
        let placement = place(Some("2,3"), &[], 2);
        let ranks = [0, 1, 2, 3].map(|d| placement.rank_on(d));
        assert_eq!(ranks, [None, None, Some(0), Some(1)]);
    }
}
