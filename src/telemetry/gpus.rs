//! Which GPUs a container can see, from what it was created with.

use super::MeasuredContainer;

/// A GPU as the driver lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Index in the driver's list, which container runtimes use too.
    pub index: u32,
    /// N of its `/dev/nvidiaN`; `None` where the driver does not report it.
    pub minor: Option<u32>,
    /// `GPU-…`, or `MIG-…` for a slice.
    pub uuid: String,
    /// For a MIG slice: its GPU and its index there.
    pub slice: Option<(u32, u32)>,
}

/// One item of a request for GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuRequestItem {
    /// Every GPU.
    All,
    /// The first N.
    First(u32),
    /// The one with this index.
    Index(u32),
    /// The one behind `/dev/nvidiaN`.
    Minor(u32),
    /// The one with this prefix of its UUID.
    Uuid(String),
    /// A MIG slice: `MIG-…`, or GPU and index as in `0:1`.
    Mig(String),
    /// Every MIG slice.
    Slices,
    /// Something else.
    Unknown(String),
}

/// A container's request for GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerGpuRequest {
    /// What is asked for.
    pub items: Vec<GpuRequestItem>,
    /// Source of the request, to be read after "according to".
    pub found_in: &'static str,
    /// Whether it may be meaningless: CUDA images set `NVIDIA_VISIBLE_DEVICES` for every container,
    /// also without a GPU.
    pub doubtful: bool,
}

/// The container's request for GPUs; `None` when it has none.
pub fn find_request(target: &MeasuredContainer) -> Option<ContainerGpuRequest> {
    let split = |text: &str| text.split(',').filter_map(item).collect::<Vec<_>>();
    let by_docker: Vec<GpuRequestItem> = target.gpu_request.iter().flat_map(|r| split(r)).collect();
    let by_environment = target
        .visible_devices
        .as_deref()
        .map(split)
        .unwrap_or_default();
    let by_device_file: Vec<GpuRequestItem> = target
        .devices
        .iter()
        .filter_map(|d| device_file(d))
        .collect();
    [
        (by_docker, "its GPU request", false),
        (by_device_file, "its device files", false),
        (by_environment, "NVIDIA_VISIBLE_DEVICES", true),
    ]
    .into_iter()
    .find(|(items, ..)| !items.is_empty())
    .map(|(items, found_in, doubtful)| ContainerGpuRequest {
        items,
        found_in,
        doubtful,
    })
}

fn item(text: &str) -> Option<GpuRequestItem> {
    // CDI writes `nvidia.com/gpu=0`.
    let text = text.trim();
    // Other makers' devices of CDI are handled elsewhere.
    let is_cdi = |t: &str| {
        t.split_once('=')
            .is_some_and(|(kind, _)| kind.contains('/'))
    };
    if is_cdi(text) && !text.starts_with("nvidia.com/") {
        return None;
    }
    let text = text.rsplit_once("/gpu=").map_or(text, |(_, name)| name);
    if let Some(count) = text.strip_prefix("count=") {
        return Some(match count.parse::<i64>() {
            Ok(0) => return None,
            Ok(n) => u32::try_from(n).map_or(GpuRequestItem::All, GpuRequestItem::First),
            Err(_) => GpuRequestItem::Unknown(text.to_owned()),
        });
    }
    Some(match text {
        "" | "none" | "void" => return None,
        "all" => GpuRequestItem::All,
        t if t.starts_with("GPU-") => GpuRequestItem::Uuid(t.to_owned()),
        t if t.starts_with("MIG-") => GpuRequestItem::Mig(t.to_owned()),
        t => match (t.parse(), t.split_once(':')) {
            (Ok(index), _) => GpuRequestItem::Index(index),
            (_, Some((gpu, slice)))
                if gpu.parse::<u32>().is_ok() && slice.parse::<u32>().is_ok() =>
            {
                GpuRequestItem::Mig(t.to_owned())
            }
            _ => GpuRequestItem::Unknown(t.to_owned()),
        },
    })
}

/// `/dev/nvidia0`, also as `/dev/nvidia0:/dev/nvidia0`.
fn device_file(text: &str) -> Option<GpuRequestItem> {
    let number = text.strip_prefix("/dev/nvidia")?;
    number
        .split(':')
        .next()?
        .parse()
        .ok()
        .map(GpuRequestItem::Minor)
}

/// The requested GPUs in the driver's order, and a sentence for each item that matches none.
pub fn select_gpus(request: &ContainerGpuRequest, listed: &[Listed]) -> (Vec<u32>, Vec<String>) {
    let mut notes = Vec::new();
    let mut chosen = Vec::new();
    for item in &request.items {
        let before = chosen.len();
        chosen.extend(
            listed
                .iter()
                .filter(|gpu| wants(item, gpu))
                .map(|gpu| gpu.index),
        );
        if chosen.len() == before {
            notes.push(match item {
                GpuRequestItem::Mig(name) => {
                    format!("no GPU of this host has the MIG slice `{name}`")
                }
                GpuRequestItem::Slices => "no GPU of this host is split into slices".to_owned(),
                GpuRequestItem::Unknown(name) => format!("`{name}` is not the name of a GPU"),
                GpuRequestItem::All | GpuRequestItem::First(_) => {
                    "there is no GPU on this host".to_owned()
                }
                GpuRequestItem::Index(n) => format!("there is no GPU {n} on this host"),
                GpuRequestItem::Minor(n) => format!("no GPU of this host is `/dev/nvidia{n}`"),
                GpuRequestItem::Uuid(name) => format!("no GPU of this host is `{name}`"),
            });
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    (chosen, notes)
}

fn wants(item: &GpuRequestItem, gpu: &Listed) -> bool {
    let begins = |prefix: &str| {
        gpu.uuid
            .get(..prefix.len())
            .is_some_and(|u| u.eq_ignore_ascii_case(prefix))
    };
    if let Some((parent, place)) = gpu.slice {
        return match item {
            GpuRequestItem::Slices => true,
            GpuRequestItem::Mig(name) => begins(name) || *name == format!("{parent}:{place}"),
            _ => false,
        };
    }
    match item {
        GpuRequestItem::All => true,
        GpuRequestItem::First(count) => gpu.index < *count,
        GpuRequestItem::Index(index) => gpu.index == *index,
        GpuRequestItem::Minor(minor) => gpu.minor == Some(*minor),
        GpuRequestItem::Uuid(prefix) => begins(prefix),
        GpuRequestItem::Mig(_) | GpuRequestItem::Slices | GpuRequestItem::Unknown(_) => false,
    }
}

/// Whether the container of this process 1 has an NVIDIA GPU device inside; `None` if that is not
/// visible.
pub fn has_gpu_inside(init_pid: u32) -> Option<bool> {
    let root = format!("/proc/{init_pid}/root/dev");
    // Reading the link needs ptrace permission; without it nothing below is visible.
    std::fs::metadata(&root).ok()?;
    // `dxg` is the GPU device of WSL.
    let device = ["nvidiactl", "dxg"]
        .iter()
        .any(|name| std::fs::exists(format!("{root}/{name}")).unwrap_or(false));
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(gpu_request: &[&str], visible: Option<&str>, devices: &[&str]) -> MeasuredContainer {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        MeasuredContainer {
            gpu_request: own(gpu_request),
            visible_devices: visible.map(str::to_owned),
            devices: own(devices),
            ..MeasuredContainer::default()
        }
    }

    fn four() -> Vec<Listed> {
        (0..4)
            .map(|i| Listed {
                index: i,
                minor: Some(3 - i),
                uuid: format!("GPU-{i}a{i}b-77"),
                slice: None,
            })
            .collect()
    }

    fn chosen(target: &MeasuredContainer) -> Vec<u32> {
        select_gpus(&find_request(target).unwrap(), &four()).0
    }

    #[test]
    fn a_request_chooses_its_gpus() {
        for (items, expected) in [
            (&["all"][..], &[0, 1, 2, 3][..]),
            (&["count=2"], &[0, 1]),
            (&["count=-1"], &[0, 1, 2, 3]),
            (&["3", "1", "1"], &[1, 3]),
            (&["GPU-2a2b-77"], &[2]),
            (&["gpu-2", "0"], &[0]),
            (&["GPU-1A1B"], &[1]),
            (&["nvidia.com/gpu=1"], &[1]),
            (&["nvidia.com/gpu=all"], &[0, 1, 2, 3]),
            (&["9"], &[]),
        ] {
            assert_eq!(chosen(&target(items, None, &[])), expected, "{items:?}");
        }
        assert_eq!(chosen(&target(&[], Some("0,2"), &[])), [0, 2]);
        assert_eq!(
            chosen(&target(
                &[],
                None,
                &["/dev/nvidiactl", "/dev/nvidia0:/dev/nvidia0"]
            )),
            [3]
        );
    }

    #[test]
    fn a_slice_is_chosen_by_its_own_name_only() {
        let mut listed = four();
        let slice = |index, place, uuid: &str| Listed {
            index,
            minor: None,
            uuid: uuid.into(),
            slice: Some((1, place)),
        };
        listed.push(slice(4, 0, "MIG-aa"));
        listed.push(slice(5, 2, "MIG-bb"));
        for (items, expected) in [
            ("MIG-bb", &[5][..]),
            ("1:0", &[4]),
            ("1:1", &[]),
            ("all", &[0, 1, 2, 3]),
            ("4", &[]),
        ] {
            let request = find_request(&target(&[items], None, &[])).unwrap();
            assert_eq!(select_gpus(&request, &listed).0, expected, "{items}");
        }
    }

    #[test]
    fn the_surer_word_counts() {
        let both = find_request(&target(&["1"], Some("all"), &[])).unwrap();
        assert_eq!(
            (both.items, both.doubtful),
            (vec![GpuRequestItem::Index(1)], false)
        );
        assert!(
            find_request(&target(&[], Some("all"), &[]))
                .unwrap()
                .doubtful
        );
    }

    #[test]
    fn no_request_is_no_request() {
        for none in [None, Some(""), Some("none"), Some("void")] {
            assert_eq!(
                find_request(&target(&[], none, &["/dev/fuse", "/dev/nvidiactl"])),
                None,
                "{none:?}"
            );
        }
        assert_eq!(find_request(&target(&["count=0"], None, &[])), None);
    }

    #[test]
    fn what_leads_to_no_gpu_is_reported() {
        let request = find_request(&target(
            &["MIG-5f-1", "0:1", "9", "GPU-zz", "warp"],
            None,
            &[],
        ))
        .unwrap();
        let (chosen, notes) = select_gpus(&request, &four());
        assert_eq!(chosen, [0u32; 0]);
        assert_eq!(notes.len(), 5);
        assert!(
            notes[0].contains("MIG slice") && notes[1].contains("MIG slice"),
            "{notes:?}"
        );
        assert!(
            notes[2].contains("no GPU 9") && notes[4].contains("warp"),
            "{notes:?}"
        );
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(text in "\\PC*", uuid in "\\PC*") {
            let listed = [Listed { index: 0, minor: None, uuid, slice: None }];
            if let Some(request) = find_request(&target(&[&text], Some(&text), &[&text])) {
                let _ = select_gpus(&request, &listed);
            }
        }
    }
}
