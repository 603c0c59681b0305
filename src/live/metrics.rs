//! A scan in Prometheus' text format.

use super::{GpuLook, MemoryScan};
use std::fmt::Write;

/// The scan as gauges. Unknown figures have no line.
pub fn metrics_text(look: &MemoryScan) -> String {
    let mut page = MetricsPage::default();
    page.family(
        "plimsoll_look_timestamp_seconds",
        "When these figures were read, seconds since the Unix epoch.",
    );
    page.write_line(&[], Some(look.timestamp));
    page.family(
        "plimsoll_gpu_simulated",
        "1 where the GPUs are simulated: the figures are not measurements of hardware.",
    );
    let simulated = look.backend.as_ref().is_some_and(|b| b.simulated);
    for gpu in look.gpus.iter().filter(|_| simulated) {
        page.gauge(gpu, &[], Some(1.0));
    }
    page.family("plimsoll_gpu_memory_total_bytes", "Memory of the GPU.");
    for gpu in &look.gpus {
        page.gauge(gpu, &[], gpu.total_bytes.map(|b| b as f64));
    }
    page.family(
        "plimsoll_gpu_memory_used_bytes",
        "Memory of the GPU in use, without the driver's reserved memory where it is reported separately.",
    );
    for gpu in &look.gpus {
        page.gauge(gpu, &[], gpu.used_bytes.map(|b| b as f64));
    }
    page.family(
        "plimsoll_gpu_memory_bytes",
        "Memory of the GPU by owner and component: processes (of a container, or of none), unattributed (in use without a known process), reserved (kept by the driver, beside what is in use).",
    );
    for gpu in &look.gpus {
        for tenant in &gpu.tenants {
            let container = tenant
                .container_name
                .as_deref()
                .or(tenant.container_id.as_deref())
                .unwrap_or("");
            let labels = [("container", container), ("component", "processes")];
            page.gauge(gpu, &labels, Some(tenant.used_bytes as f64));
        }
        for (component, bytes) in [
            ("unattributed", gpu.unattributed_bytes),
            ("reserved", gpu.reserved_bytes),
        ] {
            let labels = [("container", ""), ("component", component)];
            page.gauge(gpu, &labels, bytes.map(|b| b as f64));
        }
    }
    type GaugeReader = fn(&GpuLook) -> Option<f64>;
    let gauges: [(&str, &str, GaugeReader); 5] = [
        ("plimsoll_gpu_power_watts", "Power draw.", |g| g.power_w),
        (
            "plimsoll_gpu_utilization_ratio",
            "Share of the time in which the GPU was busy, 0 to 1.",
            |g| g.utilization_pct.map(|p| f64::from(p) / 100.0),
        ),
        ("plimsoll_gpu_temperature_celsius", "Temperature.", |g| {
            g.temperature_c.map(f64::from)
        }),
        (
            "plimsoll_gpu_clock_core_hertz",
            "Clock of the cores.",
            |g| g.clock_gfx_mhz.map(|m| f64::from(m) * 1e6),
        ),
        (
            "plimsoll_gpu_clock_memory_hertz",
            "Clock of the memory.",
            |g| g.clock_mem_mhz.map(|m| f64::from(m) * 1e6),
        ),
    ];
    for (name, help, read) in gauges {
        page.family(name, help);
        for gpu in &look.gpus {
            page.gauge(gpu, &[], read(gpu));
        }
    }
    containers(look, &mut page);
    page.text
}

fn containers(look: &MemoryScan, page: &mut MetricsPage) {
    page.family(
        "plimsoll_container_memory_bytes",
        "Memory of a container by component: host (charged to its cgroup), of it host_anon, host_file, host_shmem and host_swap, kv_pool and kv_used (on one device of each of its engines). gpu is the one GPU that it is on, and empty otherwise.",
    );
    for c in &look.containers {
        let on: Vec<&GpuLook> = look
            .gpus
            .iter()
            .filter(|g| {
                g.tenants
                    .iter()
                    .any(|t| t.container_id.as_ref() == Some(&c.id))
            })
            .collect();
        let gpu = match on[..] {
            [one] => one.uuid.as_str(),
            _ => "",
        };
        let kinds = c.host.unwrap_or_default();
        for (component, gpu, bytes) in [
            ("host", "", c.host_bytes),
            ("host_anon", "", kinds.anon_bytes),
            ("host_file", "", kinds.file_bytes),
            ("host_shmem", "", kinds.shmem_bytes),
            ("host_swap", "", kinds.swap_bytes),
            ("kv_pool", gpu, c.kv_pool_bytes),
            ("kv_used", gpu, c.kv_used_bytes),
        ] {
            let labels = [
                ("container", c.name.as_str()),
                ("gpu", gpu),
                ("component", component),
            ];
            page.write_line(&labels, bytes.map(|b| b as f64));
        }
    }
    page.family(
        "plimsoll_container_kv_usage_ratio",
        "Share of the KV pool in use, 0 to 1.",
    );
    for c in &look.containers {
        page.write_line(&[("container", &c.name)], c.kv_usage);
    }
    page.family("plimsoll_container_requests", "Requests by state.");
    for c in &look.containers {
        for (state, n) in [
            ("running", c.requests_running),
            ("waiting", c.requests_waiting),
        ] {
            let labels = [("container", c.name.as_str()), ("state", state)];
            page.write_line(&labels, n.map(|n| n as f64));
        }
    }
}

/// A page of metric families. A family's head is written with its first line.
#[derive(Default)]
struct MetricsPage {
    text: String,
    name: &'static str,
    help: Option<&'static str>,
}

impl MetricsPage {
    fn family(&mut self, name: &'static str, help: &'static str) {
        self.name = name;
        self.help = Some(help);
    }

    fn gauge(&mut self, gpu: &GpuLook, labels: &[(&str, &str)], value: Option<f64>) {
        let mut all = vec![("gpu", gpu.uuid.as_str()), ("name", gpu.name.as_str())];
        all.extend(labels);
        self.write_line(&all, value);
    }

    fn write_line(&mut self, labels: &[(&str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        let name = self.name;
        if let Some(help) = self.help.take() {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge");
        }
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.join(",") {
            none if none.is_empty() => none,
            some => format!("{{{some}}}"),
        };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::{ContainerScan, TenantLook};
    use super::*;

    #[test]
    fn gauges_bear_their_labels_and_the_unknown_has_no_line() {
        let look = MemoryScan {
            gpus: vec![GpuLook {
                uuid: "GPU-1".into(),
                name: "a \"b\"\\\n".into(),
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
                kv_pool_bytes: Some(1 << 40),
                kv_usage: Some(0.5),
                ..ContainerScan::default()
            }],
            ..MemoryScan::default()
        };
        let page = metrics_text(&look);
        for line in [
            r#"plimsoll_gpu_memory_bytes{gpu="GPU-1",name="a \"b\"\\\n",container="llm",component="processes"} 12345678901"#,
            r#"plimsoll_gpu_power_watts{gpu="GPU-1",name="a \"b\"\\\n"} 690.25"#,
            r#"plimsoll_container_memory_bytes{container="llm",gpu="GPU-1",component="kv_pool"} 1099511627776"#,
            r#"plimsoll_container_kv_usage_ratio{container="llm"} 0.5"#,
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\n{page}");
        }
        assert!(
            !page.contains("temperature") && !page.contains("kv_used\""),
            "{page}"
        );
        assert_eq!(
            page.matches("# TYPE plimsoll_gpu_memory_bytes gauge")
                .count(),
            1
        );
        let nothing = MemoryScan {
            timestamp: 1_795_273_557.25,
            ..MemoryScan::default()
        };
        let page = metrics_text(&nothing);
        assert!(
            page.ends_with("\nplimsoll_look_timestamp_seconds 1795273557.25\n"),
            "{page}"
        );
        assert_eq!(page.lines().count(), 3, "{page}");
    }
}
