//! Podman behind Docker's API: profile, run and clean, with a service and a store of the test's own.

use crate::common;
use common::e2e::{self, Ended, Live, REFERENCE_IMAGE, Results, parts_sum_to_the_peak, wait_for};
use common::{docker, said, unique};
use plimsoll::container::Runtime;
use plimsoll::container::leftovers::boot_id;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What the engine takes, MiB.
const WEIGHTS: f64 = 96.0;
const POOL: f64 = 48.0;
const ENGINE: &str = "--weights 96MiB --kv-pool 48MiB --activation 16MiB --activation-ms 20 \
                      --start-ms 500 --load-ms 1000 --settle-ms 1000";

/// A service of podman's; its containers, its mounts and its folder are gone when dropped.
struct Podman {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Podman {
    fn start() -> Podman {
        let dir = tempfile::Builder::new()
            .prefix("plimsoll-p")
            .tempdir()
            .expect("tempdir");
        let mut podman = Podman { dir, child: None };
        // crun does not start where cgroups of both versions are mounted, and netavark is a package
        // that need not be there.
        let runtime = ["runc", "crun"]
            .into_iter()
            .find(|r| e2e::program(r).is_some());
        let netavark = std::path::Path::new("/usr/lib/podman/netavark").exists();
        let network = if netavark { "netavark" } else { "cni" };
        // Its own limits are higher than what a machine may allow.
        let text = format!(
            "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n\
             [network]\nnetwork_backend = \"{network}\"\n\
             [engine]\nruntime = \"{}\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
            runtime.expect("a runtime")
        );
        std::fs::write(podman.path("containers.conf"), text).expect("containers.conf");
        let log = std::fs::File::create(podman.path("log")).expect("log");
        let mut service = podman.podman(&["system", "service", "--time=0", &podman.host()]);
        service
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log);
        podman.child = Some(service.spawn().expect("podman"));
        wait_for("podman's service", || podman.docker(&["version"]).ok());
        let image = podman.path("image.tar").display().to_string();
        docker(&["save", "-o", &image, REFERENCE_IMAGE]).expect("save");
        podman.docker(&["load", "-q", "-i", &image]).expect("load");
        podman
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.path("podman.sock").display())
    }

    fn podman(&self, args: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.path("containers.conf"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--runroot")
            .arg(self.path("run"))
            .args(args);
        command
    }

    /// `docker`, spoken to podman.
    fn docker(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new("docker");
        said(command.env("DOCKER_HOST", self.host()).args(args))
    }

    fn run(&self, args: &[&str]) -> Ended {
        let mut command = e2e::plimsoll(args);
        command
            .env("DOCKER_HOST", self.host())
            .env("XDG_STATE_HOME", self.path("state"));
        Live::start(command).end()
    }

    /// A container of the reference engine.
    fn engine(&self, options: &[&str], words: &[&str]) -> String {
        let name = unique("podman");
        let mut args = vec!["run", "-d", "--name", &name, "--stop-timeout", "1"];
        args.extend(options);
        args.push(REFERENCE_IMAGE);
        args.extend(words);
        self.docker(&args).expect("container");
        name
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let quiet = |mut command: Command| {
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        quiet(self.podman(&["rm", "--all", "--force", "--time=0"]));
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut umount = Command::new("umount");
        umount.arg("-l").arg(self.path("root/overlay"));
        quiet(umount);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn podman_is_known_and_its_processes_are_listed() {
    needs!(Docker, ReferenceEngine, Podman);
    let podman = Podman::start();
    let runtime = Runtime::connect_to(&podman.host()).await.expect("connect");
    assert!(runtime.version().podman);
    let name = podman.engine(&[], &["idle"]);
    // The image has no `ps`.
    assert_eq!(
        runtime.process_commands(&name).await,
        [["/reference-engine", "idle"]]
    );
}

/// The truth is found through podman too, and nothing is left.
#[test]
fn profile_run_and_clean() {
    needs!(Docker, ReferenceEngine, Podman);
    let podman = Podman::start();
    let extra = format!("--extra-engine-args={ENGINE}");
    let holds = |document: &serde_json::Value| {
        parts_sum_to_the_peak(document);
        let breakdown = &document["memory_breakdown"];
        for (part, truth) in [("model_weights_gb", WEIGHTS), ("kv_cache_gb", POOL)] {
            let mib = breakdown[part].as_f64().unwrap_or(f64::NAN) * 1024.0;
            assert!(
                (mib - truth).abs() <= 4.0,
                "{part}: {mib} MiB: {breakdown:#}"
            );
        }
    };

    let idle = podman.engine(&[], &["idle"]);
    let results = Results::new();
    let more = [
        "-m",
        "reference/test",
        "--baseline=300ms",
        &results.arg(),
        &extra,
    ];
    podman
        .run(&[&["profile", &idle][..], &more].concat())
        .expect(0);
    holds(&results.document());

    // Its log tells whole seconds, and yet the parts are told apart by when they were taken.
    let results = Results::new();
    let name = unique("podman-run");
    let more = [
        "--name",
        &name,
        "--baseline=300ms",
        "--num-prompts=20",
        &results.arg(),
        &extra,
    ];
    podman
        .run(&[&["run", "--preset=reference"][..], &more].concat())
        .expect(0);
    holds(&results.document());
    assert!(podman.docker(&["inspect", &name]).is_err(), "it is removed");

    let owner = format!("plimsoll.owner={}:4194303:1", boot_id());
    let lost = podman.engine(
        &["--label", "plimsoll.run=lost", "--label", &owner],
        &["idle"],
    );
    let ended = podman.run(&["clean", "--apply", "--yes"]).expect(0);
    assert!(ended.stdout.contains(&lost), "{}", ended.stdout);
    assert!(podman.docker(&["inspect", &lost]).is_err(), "it is removed");
    assert_eq!(
        podman
            .docker(&["inspect", "-f", "{{.State.Status}}", &idle])
            .as_deref(),
        Ok("running")
    );
}
