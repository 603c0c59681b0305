//! Which of the host's graphics cards (AMD's, Intel's) a container can see, from what it was created with, from the
//! device files inside it, or from where its processes are.

use super::sysfs::Card;
use crate::telemetry::MeasuredContainer;
use std::path::Path;

/// Directory of the graphics device files.
const DRI: &str = "/dev/dri";

/// One selector from the container's GPU request or device list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GpuSelector {
    /// Every GPU.
    All,
    /// The GPU at this position in the list of cards.
    Place(usize),
    /// `/dev/dri/renderDN`.
    Render(u32),
    /// `/dev/dri/cardN`.
    Card(u32),
    /// A PCI address or unique id.
    Name(String),
}

/// Whether the container was given GPUs of this kind by request (`amd.com/gpu=`), or graphics devices of any vendor.
pub fn requests_gpus(target: &MeasuredContainer, kind: &str) -> bool {
    !gpu_selectors(target, kind).is_empty()
}

/// The `/dev/dri/renderDN` that the container was given one by one; empty where it has the whole folder.
pub fn given_minors(target: &MeasuredContainer) -> Vec<u32> {
    let selectors = gpu_selectors(target, "");
    if target.devices.iter().any(|d| host_path(d) == DRI) {
        return Vec::new();
    }
    let minor = |s: &GpuSelector| match s {
        GpuSelector::Render(minor) => Some(*minor),
        _ => None,
    };
    selectors.iter().filter_map(minor).collect()
}

/// Whether a GPU is asked for by its number. Whether that counts partitions is the toolkit's own affair.
pub fn asks_by_place(target: &MeasuredContainer, kind: &str) -> bool {
    let selectors = gpu_selectors(target, kind);
    (selectors.iter()).any(|s| matches!(s, GpuSelector::Place(_)))
}

/// Positions of the cards that the container was given, and the source of that, to be read after
/// "according to"; `None` when it was given none by name.
pub fn given_cards(
    target: &MeasuredContainer,
    kind: &str,
    cards: &[Card],
) -> Option<(Vec<usize>, &'static str)> {
    let items = gpu_selectors(target, kind);
    if items.is_empty() {
        return None;
    }
    // `/dev/kfd` is shared by all GPUs; only the other selectors name one.
    let narrow = items.iter().any(|i| *i != GpuSelector::All);
    let whole = target.devices.iter().any(|d| host_path(d) == DRI);
    let chosen = (0..cards.len())
        .filter(|place| {
            let card = &cards[*place];
            items.iter().any(|item| match item {
                GpuSelector::All => !narrow || whole,
                GpuSelector::Place(n) => n == place,
                GpuSelector::Render(minor) => {
                    card.render_minor == Some(*minor) || card.partition_minors.contains(minor)
                }
                GpuSelector::Card(number) => card.number == *number,
                GpuSelector::Name(name) => {
                    name.contains(&card.bdf)
                        || card.unique_id.as_ref().is_some_and(|u| name.contains(u))
                }
            })
        })
        .collect();
    let found_in = if target.gpu_request.iter().any(|r| r.contains(kind)) {
        "its GPU request"
    } else {
        "its device files"
    };
    Some((chosen, found_in))
}

fn gpu_selectors(target: &MeasuredContainer, kind: &str) -> Vec<GpuSelector> {
    let requested = target
        .gpu_request
        .iter()
        .flat_map(|r| r.split(','))
        .filter_map(|r| r.trim().strip_prefix(kind))
        .filter(|_| !kind.is_empty())
        .map(|name| match (name, name.parse()) {
            ("all", _) => GpuSelector::All,
            // A unique id may be all digits too, but it is long.
            (_, Ok(place)) if name.len() < 4 => GpuSelector::Place(place),
            (name, _) => GpuSelector::Name(name.to_lowercase()),
        });
    let files = target
        .devices
        .iter()
        .filter_map(|d| device_file(host_path(d)));
    requested.chain(files).collect()
}

/// `/dev/dri:/dev/dri:rwm` is host path, container path and permissions. PCI addresses in names
/// contain colons too, so only a colon before a slash separates.
fn host_path(device: &str) -> &str {
    let end = device.find(":/").unwrap_or(device.len());
    device[..end].trim_end_matches('/')
}

fn device_file(path: &str) -> Option<GpuSelector> {
    if path == "/dev/kfd" || path == DRI {
        return Some(GpuSelector::All);
    }
    let name = path.strip_prefix(DRI)?.strip_prefix('/')?;
    if let Some(address) = name.strip_prefix("by-path/") {
        return Some(GpuSelector::Name(address.to_lowercase()));
    }
    let number = |prefix| name.strip_prefix(prefix).and_then(|n: &str| n.parse().ok());
    number("renderD")
        .map(GpuSelector::Render)
        .or_else(|| number("card").map(GpuSelector::Card))
}

/// Positions of the cards with a render device inside the container of this process 1: a
/// privileged container has all of them without a request. Needs `/dev/kfd` there too, because
/// desktop containers often have the graphics devices without computing on them.
pub fn cards_inside(proc: &Path, init_pid: u32, cards: &[Card]) -> Vec<usize> {
    let dev = proc.join(format!("{init_pid}/root/dev"));
    if !std::fs::exists(dev.join("kfd")).unwrap_or(false) {
        return Vec::new();
    }
    (0..cards.len())
        .filter(|place| {
            cards[*place].render_minor.is_some_and(|minor| {
                std::fs::exists(dev.join(format!("dri/renderD{minor}"))).unwrap_or(false)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(gpu_request: &[&str], devices: &[&str]) -> MeasuredContainer {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        MeasuredContainer {
            gpu_request: own(gpu_request),
            devices: own(devices),
            ..MeasuredContainer::default()
        }
    }

    fn three() -> Vec<Card> {
        [
            (57, 185, "0000:83:00.0"),
            (49, 177, "0000:8b:00.0"),
            (1, 128, "0000:c4:00.0"),
        ]
        .into_iter()
        .map(|(number, minor, bdf)| Card {
            number,
            bdf: bdf.into(),
            render_minor: Some(minor),
            unique_id: Some(format!("{number:016x}")),
            ..Card::default()
        })
        .collect()
    }

    #[test]
    fn what_was_given_chooses_the_cards() {
        for (requests, devices, expected) in [
            (&[][..], &["/dev/kfd", "/dev/dri"][..], &[0, 1, 2][..]),
            (
                &[],
                &["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri:rwm"],
                &[0, 1, 2],
            ),
            (&[], &["/dev/kfd"], &[0, 1, 2]),
            (&[], &["/dev/kfd", "/dev/dri/renderD177"], &[1]),
            (
                &[],
                &[
                    "/dev/kfd",
                    "/dev/dri/card57",
                    "/dev/dri/renderD185:/dev/dri/renderD185",
                ],
                &[0],
            ),
            (&[], &["/dev/dri/by-path/pci-0000:8b:00.0-render"], &[1]),
            (&[], &["/dev/dri/renderD200"], &[]),
            (&["amd.com/gpu=all"], &[], &[0, 1, 2]),
            (&["amd.com/gpu=2"], &["/dev/kfd"], &[2]),
            (&["amd.com/gpu=0000000000000039"], &[], &[0]),
        ] {
            let target = target(requests, devices);
            assert!(requests_gpus(&target, super::super::CDI_KIND));
            let (chosen, _) = given_cards(&target, super::super::CDI_KIND, &three()).unwrap();
            assert_eq!(chosen, expected, "{requests:?} {devices:?}");
        }
    }

    #[test]
    fn others_are_not_asked_for() {
        for target in [
            target(&[], &[]),
            target(
                &["all", "nvidia.com/gpu=0"],
                &["/dev/nvidia0", "/dev/fuse", "/dev/drink"],
            ),
        ] {
            assert!(
                !requests_gpus(&target, super::super::CDI_KIND),
                "{target:?}"
            );
            assert_eq!(given_cards(&target, super::super::CDI_KIND, &three()), None);
        }
    }

    #[test]
    fn a_privileged_container_is_looked_into() {
        let proc = tempfile::tempdir().unwrap();
        let dev = proc.path().join("9/root/dev");
        std::fs::create_dir_all(dev.join("dri")).unwrap();
        std::fs::write(dev.join("dri/renderD177"), "").unwrap();
        assert_eq!(
            cards_inside(proc.path(), 9, &three()),
            [0usize; 0],
            "no compute"
        );
        std::fs::write(dev.join("kfd"), "").unwrap();
        assert_eq!(cards_inside(proc.path(), 9, &three()), [1]);
        assert_eq!(cards_inside(proc.path(), 8, &three()), [0usize; 0]);
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(text in "(\\PC|/dev/dri/|:/|amd.com/gpu=)*") {
            let target = target(&[&text], &[&text]);
            let _ = (requests_gpus(&target, super::super::CDI_KIND), given_cards(&target, super::super::CDI_KIND, &three()));
        }
    }
}
