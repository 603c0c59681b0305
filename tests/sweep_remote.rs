//! A sweep on another machine: against a real sshd, with a key of the test's own.

use crate::{common, tune};
use common::e2e::{Live, plimsoll, program, wait_for};
use plimsoll::error::ExitCode;
use plimsoll::sweep::remote::RemoteHost;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio_util::sync::CancellationToken;

/// An sshd on a high port of this machine; ended when dropped, also by a panic.
struct Server {
    scratch: tempfile::TempDir,
    sshd: Child,
    port: u16,
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn key(path: &Path) {
    let ended = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

fn me() -> String {
    let ended = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(ended.stdout).unwrap().trim().to_owned()
}

impl Server {
    /// `plimsoll` over there is this program, or none.
    fn start(plimsoll: Option<&str>) -> Server {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name).display().to_string();
        key(&scratch.path().join("host_key"));
        key(&scratch.path().join("user_key"));
        std::fs::create_dir(at("bin")).unwrap();
        if let Some(text) = plimsoll {
            write(
                &scratch.path().join("bin/plimsoll"),
                &format!("#!/bin/sh\n{text}"),
                0o755,
            );
        }
        // Debian's sshd wants its empty folder, which its service makes; only root's does.
        if rustix::process::getuid().is_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // The home is the scratch folder, so that nothing of this machine's own is in its PATH.
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             SetEnv PATH={}:/usr/bin:/bin HOME={}\n",
            at("host_key"),
            at("user_key.pub"),
            at("bin"),
            scratch.path().display(),
        );
        write(&scratch.path().join("sshd_config"), &config, 0o600);
        let log = std::fs::File::create(at("sshd.log")).unwrap();
        let sshd = Command::new(program("sshd").unwrap())
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = Server {
            scratch,
            sshd,
            port,
        };
        wait_for("sshd", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        server
    }

    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Reached with the test's key, by the user's own ssh otherwise.
    fn remote(&self) -> RemoteHost {
        let known = std::fs::read_to_string(self.dir().join("host_key.pub")).unwrap();
        let hosts = format!("[127.0.0.1]:{} {known}", self.port);
        write(&self.dir().join("known_hosts"), &hosts, 0o600);
        let wrapper = self.dir().join("ssh");
        let text = format!(
            "#!/bin/sh\nexec '{}' -F /dev/null -i '{1}/user_key' -o UserKnownHostsFile='{1}/known_hosts' \"$@\"\n",
            program("ssh").unwrap().display(),
            self.dir().display(),
        );
        write(&wrapper, &text, 0o755);
        let mut remote =
            RemoteHost::parse_url(&format!("ssh://{}@127.0.0.1:{}", me(), self.port)).unwrap();
        remote.ssh = wrapper.into();
        remote
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir().join(name)).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Runs it with a file on its standard input, and gives its exit code and what it said: data, then talk.
async fn run(remote: &RemoteHost, words: &[&str], stop: &CancellationToken) -> (u8, Vec<u8>) {
    let (mut said, mut told) = (Vec::new(), String::new());
    let mut data = |bytes: &[u8]| {
        said.extend_from_slice(bytes);
        Ok(())
    };
    let mut talk = |line: &str| told.extend([line, "\n"]);
    let code = remote
        .run_plimsoll(words, Some(b"models: []\n"), (&mut data, &mut talk), stop)
        .await
        .unwrap();
    said.extend_from_slice(told.as_bytes());
    (code, said)
}

/// Tells what it got, and leaves results.
const STAND_IN: &str = r#"
if [ "$1" = --version ]; then echo "plimsoll VERSION"; exit; fi
printf '%s\0' "$@" >~/words
cat >~/file
mkdir -p ~/out/cells
echo 1 >~/out/results.csv
echo 2 >~/out/cells/a.json
ln -s /etc ~/out/etc
printf 'data\033[2J\0and more\n'
printf '\033]0;title\007a note\n' >&2
exit 5
"#;

fn stand_in() -> String {
    STAND_IN.replace("VERSION", env!("CARGO_PKG_VERSION"))
}

#[tokio::test(flavor = "multi_thread")]
async fn words_file_data_code_and_results_come_through() {
    needs!(Sshd);
    let server = Server::start(Some(&stand_in()));
    let remote = server.remote();
    remote.check_version().await.unwrap();
    let words = [
        "sweep",
        "-",
        "--name=it's \"$(touch ~/x)\" `touch ~/y`\n;",
        "",
        "--only=!x",
    ];
    let stop = CancellationToken::new();
    let (code, said) = run(&remote, &words, &stop).await;
    // Nothing that a terminal would obey.
    assert_eq!(
        (code, said.as_slice()),
        (5, b"data[2Jand more\n]0;titlea note\n".as_slice())
    );
    assert_eq!(
        server
            .read("words")
            .split_terminator('\0')
            .collect::<Vec<_>>(),
        words
    );
    assert_eq!(server.read("file"), "models: []\n");
    assert!(!server.dir().join("x").exists() && !server.dir().join("y").exists());

    let here = tempfile::tempdir().unwrap();
    let into = here.path().join("results");
    let out = server.dir().join("out").display().to_string();
    let unpacked = remote.fetch_folder(&out, &into, &stop).await.unwrap();
    assert_eq!(
        (unpacked.files, unpacked.left_out),
        (2, vec!["./etc".to_owned()])
    );
    assert_eq!(std::fs::read(into.join("cells/a.json")).unwrap(), b"2\n");
    assert!(!into.join("etc").exists());

    let failure = remote
        .fetch_folder("nothing-there", &into, &stop)
        .await
        .unwrap_err();
    assert!(failure.message.contains("nothing-there"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_data_than_a_pipe_holds_comes_whole() {
    needs!(Sshd);
    let server = Server::start(Some(
        "cat >/dev/null; yes \"$(printf %099d 0)\" | head -c 3000000",
    ));
    let (code, said) = run(&server.remote(), &["sweep", "-"], &CancellationToken::new()).await;
    assert_eq!((code, said.len()), (0, 3_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_gets_there_and_its_end_is_waited_for() {
    needs!(Sshd);
    let server = Server::start(Some(
        "trap 'echo ended in order >~/end; exit 130' INT\necho begun; touch ~/begun\nwhile :; do sleep 0.1; done",
    ));
    let remote = server.remote();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (remote, stop) = (remote.clone(), stop.clone());
        async move { run(&remote, &["sweep", "-"], &stop).await }
    });
    // Not from the first moment on: a signal that comes before the trap is another story.
    let begun: PathBuf = server.dir().join("begun");
    wait_for("its beginning", || begun.exists().then_some(()));
    stop.cancel();
    let (code, said) = running.await.unwrap();
    assert_eq!((code, said.as_slice()), (130, b"begun\n".as_slice()));
    assert_eq!(server.read("end"), "ended in order\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_off_is_no_exit_code() {
    needs!(Sshd);
    // The one above a session's shell is the sshd that serves it.
    let server = Server::start(Some("kill -KILL $PPID; exec sleep 5"));
    let mut data = |_: &[u8]| Ok(());
    let stop = CancellationToken::new();
    let remote = server.remote();
    let failure = remote
        .run_plimsoll(&["sweep"], None, (&mut data, &mut |_| {}), &stop)
        .await
        .unwrap_err();
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(failure.message.contains("broke off"), "{failure}");
    assert!(
        failure.hints.iter().any(|h| h.contains("--resume")),
        "{failure:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_before_anything_runs() {
    needs!(Sshd);
    for (plimsoll, says) in [
        (None, "there is no plimsoll on"),
        (Some("echo plimsoll 0.0.1"), "is 0.0.1, this one is"),
        (Some("echo hello"), "printed no version"),
        (
            Some("echo not for this machine >&2; exit 3"),
            "not for this machine",
        ),
    ] {
        let server = Server::start(plimsoll);
        let failure = server.remote().check_version().await.unwrap_err();
        assert_eq!(failure.code, ExitCode::Environment);
        assert!(failure.message.contains(says), "{failure}");
        assert!(
            failure.hints.iter().any(|h| h.contains("scp")),
            "{failure:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_let_us_in_is_told_in_sshs_words() {
    needs!(Sshd);
    let server = Server::start(Some(&stand_in()));
    let remote = server.remote();
    key(&server.dir().join("other_key"));
    std::fs::rename(
        server.dir().join("other_key"),
        server.dir().join("user_key"),
    )
    .unwrap();
    let failure = remote.check_version().await.unwrap_err();
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(failure.message.contains("Permission denied"), "{failure}");
    assert!(
        failure.hints.iter().any(|h| h.contains("BatchMode=yes")),
        "{failure:?}"
    );
}

#[tokio::test]
async fn without_an_ssh_the_way_to_one_is_told() {
    let mut remote = RemoteHost::parse_url("ssh://node").unwrap();
    remote.ssh = "/nonexistent/ssh".into();
    let failure = remote.check_version().await.unwrap_err();
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(
        failure.hints.iter().any(|h| h.contains("openssh-client")),
        "{failure:?}"
    );
}

#[test]
fn parts_of_a_tuning_over_ssh_and_here_are_answered_as_one() {
    needs!(Sshd, Docker, ReferenceEngine);
    let server = Server::start(Some(&format!(
        "exec '{}' \"$@\"",
        env!("CARGO_BIN_EXE_plimsoll")
    )));
    let remote = server.remote();
    let here = tempfile::tempdir().unwrap();
    tune::settings_file(
        &here.path().join("tuned.yaml"),
        5,
        "max-num-seqs: [4, 16], num-scheduler-steps: [1, 4]",
    );
    let run = |words: &[&str], code| {
        let mut command = plimsoll(words);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", server.dir().display()));
        Live::start({
            command.current_dir(here.path());
            command
        })
        .end()
        .expect(code)
    };
    let tune = |words: &[&str], code| {
        run(
            &[&["tune", "tuned.yaml"], &tune::QUICK[..], words].concat(),
            code,
        )
    };
    let url = format!("--docker-host=ssh://{remote}");
    tune(&[&url, "--shard=1/2", "--output-dir=one"], 0);
    tune(&["--shard=2/2", "--output-dir=two"], 0);
    let [one, two] = ["one", "two"].map(|run| tune::measured(&here.path().join(run)));
    assert!(
        !one.is_empty() && one.iter().all(|cell| !two.contains(cell)),
        "{one:?} {two:?}"
    );
    run(&["sweep", "merge", "one", "two", "--output=merged"], 0);
    let answer = tune(&["--resume=merged"], 0);
    assert!(
        answer.stdout.contains("4 trials of 4 combinations"),
        "{}",
        answer.stdout
    );
    let refused = tune(&[&url, "--resume=two"], 2);
    assert!(
        refused.error().contains("begun on this machine"),
        "{}",
        refused.stderr
    );
}
