//! `watch`: engines are followed from their start to their death, over restarts of `watch` itself, and a real Prometheus
//! scrapes it, evaluates the alerts and answers the dashboard.

use crate::common::docker;
use crate::common::e2e::{Engine, REFERENCE_IMAGE, Results, program, run, wait_for};
use crate::common::stage;
use crate::common::watched::{Watched, parts_of};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const GPU: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
at 0 gpu 0 used=70000 power=690000 temp=66 util=100 sm=1755 mem=2619
";
const SMALL: [&str; 6] = [
    "--weights",
    "64MiB",
    "--kv-pool",
    "32MiB",
    "--activation",
    "8MiB",
];

#[test]
fn an_engine_is_followed_to_its_death_and_beyond_a_killed_watch() {
    needs!(Docker, ReferenceEngine);
    let state = tempfile::tempdir().unwrap();
    let profiles = state.path().join("profiles");
    let profiles = profiles.to_str().unwrap();
    let watched = Watched::start(state.path(), &["--profiles", profiles]);
    // Of a size at which the kernel's own pages are less than 1 %.
    let sizes = [
        "--weights",
        "512MiB",
        "--kv-pool",
        "128MiB",
        "--activation",
        "8MiB",
    ];
    let engine = Engine::serving("watch-followed", &[], &sizes);
    let line = |metric: &str| {
        format!(
            "plimsoll_container_{metric}{{container=\"{}\"}}",
            engine.name
        )
    };
    watched.wait_for(&line("serving"), |v| v == 1.0);
    watched.wait_for(&line("starts_total"), |v| v == 1.0);
    let parts = wait_for("its parts", || {
        Some(parts_of(&watched.scrape(), &engine.name)).filter(|parts| !parts.is_empty())
    });

    // The same as a profile without load has.
    let results = Results::new();
    run(&[
        "profile",
        &engine.name,
        "--bench=none",
        "--duration=2s",
        &results.arg(),
    ])
    .expect(0);
    let profile = results.document();
    let total: f64 = parts.values().sum();
    let components = profile["memory_breakdown"]["components"]
        .as_array()
        .unwrap();
    for part in components {
        let name = part["component"].as_str().unwrap();
        if name == "page_cache" {
            // The kernel's, which takes it back when it likes.
            continue;
        }
        let (here, there) = (parts[name], part["bytes"].as_f64().unwrap());
        assert!(
            (here - there).abs() <= total * 0.01,
            "{name}: {here} and {there} of {total}"
        );
    }
    let kept = Path::new(profiles).join(format!("{}.json", engine.name));
    assert!(kept.is_file(), "no {}", kept.display());

    // A restart ends a life by who asked for it, though the container runs again when it is looked at.
    let deaths = format!(
        "plimsoll_container_deaths_total{{container=\"{}\",cause=\"killed_by_user_or_orchestrator\"}}",
        engine.name
    );
    docker(&["restart", &engine.id]).unwrap();
    watched.wait_for(&deaths, |v| v == 1.0);
    watched.wait_for(&line("serving"), |v| v == 1.0);

    // A death is counted by its cause, once.
    docker(&["kill", &engine.id]).unwrap();
    watched.wait_for(&deaths, |v| v == 2.0);
    watched.wait_for(&line("running"), |v| v == 0.0);

    // A death while no `watch` runs is found by the next one.
    watched.live.signal(Signal::KILL);
    watched.live.end();
    docker(&["start", &engine.id]).unwrap();
    docker(&["kill", &engine.id]).unwrap();
    let again = Watched::start(state.path(), &[]);
    again.wait_for(&deaths, |v| v == 3.0);
    again.wait_for(&line("starts_total"), |v| v == 3.0);
    again.live.signal(Signal::TERM);
    let ended = again.live.end().expect(0);
    let death = ended
        .stdout
        .lines()
        // Tests beside this one kill containers of their own.
        .find(|l| l.contains("\"death\"") && l.contains(&engine.name))
        .expect("a line of the death");
    let death: Value = serde_json::from_str(death).unwrap();
    assert_eq!(death["container"], engine.name.as_str());
    assert_eq!(death["exit_code"], 137);
    assert!(
        death["advice"].is_string() || death["means"].is_string(),
        "{death}"
    );
}

#[test]
fn every_death_of_containers_that_loop_has_its_cause() {
    needs!(Docker, ReferenceEngine);
    let count = std::env::var("PLIMSOLL_WATCH_CONTAINERS").ok();
    let count: usize = count.and_then(|n| n.parse().ok()).unwrap_or(4);
    let state = tempfile::tempdir().unwrap();
    let watched = Watched::start(state.path(), &[]);
    watched.wait_for("plimsoll_scan_timestamp_seconds", |_| true);
    let looping = |n: usize| {
        let name = format!("watch-loops-{n}");
        Engine::run(
            &name,
            &["--restart=on-failure:2"],
            REFERENCE_IMAGE,
            &["serve", "--no-such-flag"],
        )
    };
    let engines: Vec<Engine> = (0..count).map(looping).collect();
    for engine in &engines {
        let deaths = format!(
            "plimsoll_container_deaths_total{{container=\"{}\",cause=\"bad_flag\"}}",
            engine.name
        );
        watched.wait_for(&deaths, |v| v >= 3.0);
    }
    let page = watched.scrape();
    let deaths = page
        .iter()
        .filter(|(line, _)| line.starts_with("plimsoll_container_deaths_total"));
    let ours = deaths.filter(|(line, _)| engines.iter().any(|e| line.contains(&e.name)));
    let all: f64 = ours.map(|(_, n)| n).sum();
    assert_eq!(all, 3.0 * count as f64, "{page:?}");
}

/// Prometheus over a folder of its own; ended when dropped.
struct Prometheus {
    child: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn grafana() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("containers/grafana")
}

impl Prometheus {
    fn start(target: &str) -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(grafana().join("prometheus.yaml")).unwrap();
        let text = text.replace("15s", "1s").replace("localhost:9400", target);
        std::fs::write(dir.path().join("prometheus.yaml"), text).unwrap();
        std::fs::copy(grafana().join("rules.yaml"), dir.path().join("rules.yaml")).unwrap();
        // Another process may take the port before Prometheus does: then it ends, and another is tried.
        let (child, address) = wait_for("Prometheus", || {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap().to_string();
            drop(free);
            let mut child = Command::new(program("prometheus").unwrap())
                .arg(format!(
                    "--config.file={}",
                    dir.path().join("prometheus.yaml").display()
                ))
                .arg(format!(
                    "--storage.tsdb.path={}",
                    dir.path().join("data").display()
                ))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let ready = wait_for("it is ready or ended", || {
                let ended = child.try_wait().unwrap().is_some();
                let ready = ask(&address, "/-/ready").is_some();
                (ended || ready).then_some(ready)
            });
            ready.then_some((child, address))
        });
        Prometheus {
            child,
            address,
            _dir: dir,
        }
    }

    /// The series that a query gets.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|b| format!("%{b:02X}")).collect();
        let body = ask(&self.address, &format!("/api/v1/query?query={encoded}"));
        let reply: Value = serde_json::from_str(&body.unwrap_or_default()).unwrap_or_default();
        assert_ne!(reply["status"], "error", "{query}: {reply}");
        reply["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

fn ask(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// What an earlier watch knew of a container that grows by 1 MiB a minute, and of its death.
fn earlier_ledger(engine: &Engine) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let bins: Vec<Value> = (0..120)
        .map(|n| {
            serde_json::json!([
                now - 1210.0 + f64::from(n) * 10.0,
                (40 << 20) + n * (175 << 10)
            ])
        })
        .collect();
    serde_json::json!({"events_until_ns": (now * 1e9) as i64, "containers": {&engine.name: {
        "id": engine.id, "engine": "reference", "simulated": true, "seen_at": now,
        "deaths": {"gpu_oom_at_load": 1}, "last_death": {"at_ns": ((now - 30.0) * 1e9) as i64, "cause": "gpu_oom_at_load"},
        "life": {"growth": {"": {"bins": bins, "width_s": 1.0}}}
    }}})
}

#[test]
fn prometheus_evaluates_the_alerts_and_answers_the_dashboard() {
    needs!(Docker, ReferenceEngine, Prometheus);
    let promtool = Command::new(program("promtool").unwrap())
        .current_dir(grafana())
        .args(["test", "rules", "rules-test.yaml"])
        .output()
        .unwrap();
    assert!(promtool.status.success(), "{promtool:?}");

    let engine = Engine::serving("watch-scraped", &["-m", "512m"], &SMALL);
    let state = tempfile::tempdir().unwrap();
    let scenario = state.path().join("scenario");
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &engine.id]).unwrap();
    std::fs::write(&scenario, format!("{GPU}at 0 proc 0 {pid} 60000\n")).unwrap();
    let folder = state.path().join("plimsoll");
    plimsoll::store::private::create_folders(&folder).unwrap();
    std::fs::write(
        folder.join("watch.json"),
        earlier_ledger(&engine).to_string(),
    )
    .unwrap();
    let watched = Watched::start_with(state.path(), &[], |command| {
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, &scenario);
    });
    let prometheus = Prometheus::start(&watched.address);

    let dashboard = std::fs::read_to_string(grafana().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let own = format!("{}.*", engine.name);
    for target in targets {
        let query = target["expr"].as_str().unwrap().replace("$container", &own);
        let query = query
            .replace("$gpu", ".*")
            .replace("$__rate_interval", "10s");
        wait_for(&query, || {
            Some(prometheus.query(&query)).filter(|series| !series.is_empty())
        });
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"].as_str().unwrap();
        if let Some(inside) = query.strip_prefix("label_values(") {
            let (metric, label) = inside.trim_end_matches(')').split_once(", ").unwrap();
            let series = prometheus.query(metric);
            assert!(
                series.iter().any(|s| s["metric"][label].is_string()),
                "{query}: {series:?}"
            );
        }
    }
    // Alerts that need no time of their own.
    let alert = format!(
        "ALERTS{{alertname=\"PlimsollContainerDied\",container=\"{}\",alertstate=\"firing\"}}",
        engine.name
    );
    wait_for(&alert, || {
        Some(prometheus.query(&alert)).filter(|series| !series.is_empty())
    });
    for (alert, labels) in [
        (
            "PlimsollMemoryLeak",
            format!("container=\"{}\"", engine.name),
        ),
        ("PlimsollStuckMemory", "gpu=~\"GPU-0.*\"".to_owned()),
    ] {
        let alert = format!("ALERTS{{alertname=\"{alert}\",{labels}}}");
        wait_for(&alert, || {
            Some(prometheus.query(&alert)).filter(|series| !series.is_empty())
        });
    }
}
