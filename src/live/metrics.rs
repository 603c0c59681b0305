//! A scan and what is remembered as metrics: OpenMetrics, or Prometheus' older text.

use super::ledger::{ContainerRecord, HOST_DEVICE, WatchLedger, devices_of};
use super::{ContainerScan, GpuLook, MemoryScan};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Prefix of every name, followed by an underscore.
pub const PREFIX: &str = "plimsoll";

/// A family of metrics.
#[derive(Debug, Clone, Copy)]
pub struct MetricFamily {
    /// Name, without [`PREFIX`] and the `_total` of a counter's lines.
    pub name: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it is.
    pub help: &'static str,
}

const GPU: &[&str] = &["gpu", "name"];
const CONTAINER: &[&str] = &["container"];
const ON_DEVICE: &[&str] = &["container", "gpu"];

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    MetricFamily {
        name,
        is_counter: false,
        labels,
        help,
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    MetricFamily {
        is_counter: true,
        ..gauge(name, labels, help)
    }
}

/// All families. `gpu` is a GPU's UUID, and empty for the host's memory.
#[rustfmt::skip]
pub const FAMILIES: &[MetricFamily] = &[
    gauge("scan_timestamp_seconds", &[], "When these figures were read, since the Unix epoch"),
    gauge("scan_problems", &[], "Sources that could not be read in this scan"),
    gauge("gpu_simulated", GPU, "1 where the GPUs are simulated: their figures say nothing about hardware"),
    gauge("gpu_memory_total_bytes", GPU, "Memory of the GPU"),
    gauge("gpu_memory_used_bytes", GPU, "In use, without what the driver reserves where it reports that apart"),
    gauge("gpu_headroom_bytes", GPU, "Total less used and reserved"),
    gauge("gpu_memory_bytes", &["gpu", "name", "container", "component"], "By owner: processes (of a container, or of none), unattributed (no known process), reserved (by the driver)"),
    gauge("gpu_power_watts", GPU, "Power draw"),
    gauge("gpu_utilization_ratio", GPU, "Share of the time in which the GPU was busy, 0 to 1"),
    gauge("gpu_temperature_celsius", GPU, "Temperature"),
    gauge("gpu_clock_core_hertz", GPU, "Clock of the cores"),
    gauge("gpu_clock_memory_hertz", GPU, "Clock of the memory"),
    gauge("host_memory_total_bytes", &[], "Memory of the host"),
    gauge("host_memory_available_bytes", &[], "What the host can still give without swapping"),
    gauge("host_swap_used_bytes", &[], "Swap in use"),
    gauge("container_info", &["container", "engine", "model", "version", "simulated"], "1 for each container with an engine; labels are empty where unknown"),
    gauge("container_running", CONTAINER, "1 while it runs, else 0; no line while the daemon does not answer"),
    gauge("container_serving", CONTAINER, "1 where its engine answers, else 0"),
    gauge("container_breakdown_bytes", &["container", "gpu", "component"], "Parts of its memory when they were last read; those of one device sum to what was in use"),
    gauge("container_memory_bytes", &["container", "gpu", "component"], "Now: gpu (on this GPU), host (charged to its cgroup), of it host_anon, host_file, host_shmem and host_swap, kv_pool and kv_used (on one device of each of its engines; gpu is empty where it is on several)"),
    gauge("container_memory_peak_bytes", ON_DEVICE, "Highest use seen since its start, without page cache"),
    gauge("container_memory_limit_bytes", CONTAINER, "Smallest limit on its host memory, its own or of a level above"),
    gauge("container_headroom_bytes", CONTAINER, "That limit less what it holds without page cache"),
    gauge("container_memory_growth_bytes_per_second", ON_DEVICE, "How fast its use grows, 0 where it does not; from 10 minutes on"),
    gauge("container_kv_usage_ratio", CONTAINER, "Share of the KV pool in use, 0 to 1"),
    gauge("container_requests", &["container", "state"], "Requests: running, waiting"),
    counter("container_preemptions", CONTAINER, "Preemptions since its engine started"),
    counter("container_starts", CONTAINER, "Starts that were seen"),
    counter("container_deaths", &["container", "cause"], "Deaths by cause, as `why` names it"),
    gauge("container_last_death_timestamp_seconds", &["container", "cause"], "When it last died, since the Unix epoch"),
];

/// One scrape in both formats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsPage {
    /// OpenMetrics 1.0.
    pub open_metrics: String,
    /// Prometheus' text format 0.0.4.
    pub prometheus: String,
}

impl MetricsPage {
    /// The scan and what is remembered of its containers. Unknown figures have no line.
    pub fn of_scan(scan: &MemoryScan, ledger: &WatchLedger) -> MetricsPage {
        let mut lines = MetricLines::default();
        write_host(scan, &mut lines);
        scan.gpus
            .iter()
            .for_each(|gpu| write_gpu(scan, gpu, &mut lines));
        for (name, record) in &ledger.containers {
            write_record(scan, name, record, &mut lines);
        }
        for container in &scan.containers {
            write_container(scan, container, &mut lines);
        }
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(lines));
        let mut page = MetricsPage::default();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut page.open_metrics, &registry);
        let _ = prometheus_text::encode(&mut page.prometheus, &registry);
        page
    }
}

/// The lines of each family.
#[derive(Debug)]
struct MetricLines(Vec<Vec<(Vec<String>, f64)>>);

impl Default for MetricLines {
    fn default() -> MetricLines {
        MetricLines(vec![Vec::new(); FAMILIES.len()])
    }
}

impl MetricLines {
    /// A line of the family of this name; none where the value is unknown.
    fn add(&mut self, name: &str, labels: &[&str], value: impl Into<Option<f64>>) {
        let place = FAMILIES.iter().position(|f| f.name == name);
        debug_assert!(place.is_some(), "no family {name}");
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        if let (Some(lines), Some(value)) = (place.and_then(|p| self.0.get_mut(p)), value.into()) {
            lines.push((labels, value));
        }
    }
}

impl Collector for MetricLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (family, lines) in FAMILIES.iter().zip(&self.0) {
            let kind = if family.is_counter {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            if lines.is_empty() {
                continue;
            }
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (values, value) in lines {
                let labels: Vec<(&str, &str)> = (family.labels.iter().copied())
                    .zip(values.iter().map(String::as_str))
                    .collect();
                let mut line = metric.encode_family(&labels)?;
                if family.is_counter {
                    line.encode_counter::<NoLabelSet, f64, f64>(value, None)?;
                } else {
                    line.encode_gauge(value)?;
                }
            }
        }
        Ok(())
    }
}

fn number(count: Option<u64>) -> Option<f64> {
    count.map(|n| n as f64)
}

fn write_host(scan: &MemoryScan, lines: &mut MetricLines) {
    lines.add("scan_timestamp_seconds", &[], scan.timestamp);
    lines.add("scan_problems", &[], scan.notes.len() as f64);
    if let Some(host) = &scan.host {
        for (name, held) in [
            ("host_memory_total_bytes", Some(host.total_bytes)),
            ("host_memory_available_bytes", Some(host.available_bytes)),
            ("host_swap_used_bytes", host.swap_used_bytes),
        ] {
            lines.add(name, &[], number(held));
        }
    }
}

fn write_gpu(scan: &MemoryScan, gpu: &GpuLook, lines: &mut MetricLines) {
    let labels = [gpu.uuid.as_str(), gpu.name.as_str()];
    let simulated = scan.backend.as_ref().is_some_and(|b| b.simulated);
    let hertz = |mhz: Option<u32>| mhz.map(|m| f64::from(m) * 1e6);
    for (name, value) in [
        ("gpu_simulated", simulated.then_some(1.0)),
        ("gpu_memory_total_bytes", number(gpu.total_bytes)),
        ("gpu_memory_used_bytes", number(gpu.used_bytes)),
        ("gpu_headroom_bytes", number(gpu.free_bytes())),
        ("gpu_power_watts", gpu.power_w),
        (
            "gpu_utilization_ratio",
            gpu.utilization_pct.map(|p| f64::from(p) / 100.0),
        ),
        ("gpu_temperature_celsius", gpu.temperature_c.map(f64::from)),
        ("gpu_clock_core_hertz", hertz(gpu.clock_gfx_mhz)),
        ("gpu_clock_memory_hertz", hertz(gpu.clock_mem_mhz)),
    ] {
        lines.add(name, &labels, value);
    }
    let mut owner = |container: &str, component: &str, held: Option<u64>| {
        let [uuid, name] = labels;
        let labels = [uuid, name, container, component];
        lines.add("gpu_memory_bytes", &labels, number(held));
    };
    for tenant in &gpu.tenants {
        let container = (tenant.container_name.as_deref()).or(tenant.container_id.as_deref());
        let held = Some(tenant.used_bytes);
        owner(container.unwrap_or(""), "processes", held);
    }
    owner("", "unattributed", gpu.unattributed_bytes);
    owner("", "reserved", gpu.reserved_bytes);
}

fn write_record(scan: &MemoryScan, name: &str, record: &ContainerRecord, lines: &mut MetricLines) {
    let running = scan.containers.iter().find(|c| c.name == name);
    let serving = running.is_some_and(|c| c.serving);
    let flag = |is: bool| f64::from(u8::from(is));
    let life = &record.life;
    let known = |text: &Option<String>| text.clone().unwrap_or_default();
    let simulated = record.simulated.to_string();
    let (engine, model) = (known(&record.engine), known(&life.model));
    let version = known(&life.engine_version);
    let labels = [name, &engine, &model, &version, &simulated];
    lines.add("container_info", &labels, 1.0);
    if running.is_some() || scan.all_listed {
        let is_running = flag(running.is_some());
        lines.add("container_running", &[name], is_running);
        lines.add("container_serving", &[name], flag(serving));
    }
    lines.add("container_starts", &[name], record.starts as f64);
    for (cause, deaths) in &record.deaths {
        lines.add("container_deaths", &[name, cause], *deaths as f64);
    }
    if let Some(death) = &record.last_death {
        let cause = death.cause.as_deref().unwrap_or("unknown");
        let at = death.at_ns as f64 / 1e9;
        let labels = [name, cause];
        lines.add("container_last_death_timestamp_seconds", &labels, at);
    }
    if running.is_none() {
        return;
    }
    for part in &life.parts {
        let key = serde_json::to_value(part.component).unwrap_or_default();
        let key = key.as_str().unwrap_or_default();
        let labels = [name, &part.device, key];
        lines.add("container_breakdown_bytes", &labels, part.bytes as f64);
    }
    for (device, peak) in &life.peak_bytes {
        let labels = [name, device];
        lines.add("container_memory_peak_bytes", &labels, *peak as f64);
    }
    for (device, rate) in &life.growth_per_s {
        let labels = [name, device];
        lines.add("container_memory_growth_bytes_per_second", &labels, *rate);
    }
}

fn write_container(scan: &MemoryScan, container: &ContainerScan, lines: &mut MetricLines) {
    let name = container.name.as_str();
    let kinds = container.host.unwrap_or_default();
    let devices = devices_of(scan, container);
    let gpus: Vec<&(String, u64)> = devices.iter().filter(|(d, _)| d != HOST_DEVICE).collect();
    // The pool is on one device; which, is known where there is but one.
    let only = match gpus[..] {
        [(gpu, _)] => gpu.as_str(),
        _ => HOST_DEVICE,
    };
    let on_gpus = gpus
        .iter()
        .map(|(gpu, held)| ("gpu", gpu.as_str(), Some(*held)));
    let others = [
        ("host", HOST_DEVICE, container.host_bytes),
        ("host_anon", HOST_DEVICE, kinds.anon_bytes),
        ("host_file", HOST_DEVICE, kinds.file_bytes),
        ("host_shmem", HOST_DEVICE, kinds.shmem_bytes),
        ("host_swap", HOST_DEVICE, kinds.swap_bytes),
        ("kv_pool", only, container.kv_pool_bytes),
        ("kv_used", only, container.kv_used_bytes),
    ];
    for (component, gpu, held) in on_gpus.chain(others) {
        let labels = [name, gpu, component];
        lines.add("container_memory_bytes", &labels, number(held));
    }
    for (metric, value) in [
        (
            "container_memory_limit_bytes",
            number(container.host_limit_bytes),
        ),
        (
            "container_headroom_bytes",
            number(container.headroom_bytes()),
        ),
        ("container_kv_usage_ratio", container.kv_usage),
        ("container_preemptions", number(container.preemptions)),
    ] {
        lines.add(metric, &[name], value);
    }
    for (state, count) in [
        ("running", container.requests_running),
        ("waiting", container.requests_waiting),
    ] {
        lines.add("container_requests", &[name, state], number(count));
    }
}

#[cfg(test)]
mod tests {
    use super::super::TenantLook;
    use super::super::ledger::DeathRecord;
    use super::*;

    fn scan() -> MemoryScan {
        MemoryScan {
            timestamp: 1_795_273_557.25,
            gpus: vec![GpuLook {
                uuid: "GPU-1".into(),
                name: "a \"b\"\\\n".into(),
                total_bytes: Some(80 << 30),
                used_bytes: Some(70 << 30),
                tenants: vec![TenantLook {
                    container_id: Some("cafe".into()),
                    container_name: Some("llm".into()),
                    used_bytes: 12_345_678_901,
                }],
                power_w: Some(690.25),
                ..GpuLook::default()
            }],
            containers: vec![ContainerScan {
                id: "cafe".into(),
                name: "llm".into(),
                engine: Some("vllm".into()),
                kv_pool_bytes: Some(1 << 40),
                kv_usage: Some(0.5),
                ..ContainerScan::default()
            }],
            ..MemoryScan::default()
        }
    }

    #[test]
    fn metrics_bear_their_labels_and_the_unknown_has_no_line() {
        let mut ledger = WatchLedger::default();
        ledger.record_scan(&scan());
        let death = DeathRecord {
            at_ns: 1_500_000_000,
            ..DeathRecord::default()
        };
        ledger.record_death("llm", 2, death);
        let MetricsPage {
            open_metrics,
            prometheus,
        } = MetricsPage::of_scan(&scan(), &ledger);
        for line in [
            r#"plimsoll_gpu_memory_bytes{gpu="GPU-1",name="a \"b\"\\\n",container="llm",component="processes"} 12345678901.0"#,
            r#"plimsoll_gpu_power_watts{gpu="GPU-1",name="a \"b\"\\\n"} 690.25"#,
            r#"plimsoll_gpu_headroom_bytes{gpu="GPU-1",name="a \"b\"\\\n"} 10737418240.0"#,
            r#"plimsoll_container_memory_bytes{container="llm",gpu="GPU-1",component="kv_pool"} 1099511627776.0"#,
            r#"plimsoll_container_memory_bytes{container="llm",gpu="GPU-1",component="gpu"} 12345678901.0"#,
            r#"plimsoll_container_kv_usage_ratio{container="llm"} 0.5"#,
            r#"plimsoll_container_deaths_total{container="llm",cause="unknown"} 2.0"#,
            r#"plimsoll_container_last_death_timestamp_seconds{container="llm",cause="unknown"} 1.5"#,
        ] {
            assert!(
                open_metrics.lines().any(|l| l == line),
                "{line}\n{open_metrics}"
            );
            assert!(
                prometheus.lines().any(|l| l == line),
                "{line}\n{prometheus}"
            );
        }
        for page in [&open_metrics, &prometheus] {
            assert!(
                !page.contains("temperature") && !page.contains("\"kv_used"),
                "{page}"
            );
            assert_eq!(
                page.matches("# TYPE plimsoll_gpu_memory_bytes gauge")
                    .count(),
                1
            );
        }
        assert!(open_metrics.ends_with("# EOF\n"), "{open_metrics}");
        assert!(
            prometheus.contains("# TYPE plimsoll_container_deaths_total counter"),
            "{prometheus}"
        );
    }

    #[test]
    fn a_line_needs_a_family_with_as_many_labels() {
        let mut ledger = WatchLedger::default();
        ledger.record_scan(&scan());
        let mut lines = MetricLines::default();
        write_gpu(&scan(), &scan().gpus[0], &mut lines);
        write_container(&scan(), &scan().containers[0], &mut lines);
        write_record(&scan(), "llm", &ledger.containers["llm"], &mut lines);
        for (family, lines) in FAMILIES.iter().zip(&lines.0) {
            assert!(
                lines.iter().all(|(l, _)| l.len() == family.labels.len()),
                "{family:?}"
            );
        }
    }
}
