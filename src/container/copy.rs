//! Copies files into and out of a container.
//!
//! Reads the one file in an archive from a container: names in it are not trusted, and nothing is
//! unpacked.

use super::exec::{ExecRequest, Input, Output, argv_of};
use super::{Runtime, checked_name, daemon_answer, daemon_failure};
use crate::capture::ExecEnd;
use crate::error::Failure;
use bollard::body_full;
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, DownloadFromContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures::StreamExt;
use std::io::Read;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout for a small file.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that tar adds to one file: headers (also for long names), padding, end.
const TAR_OVERHEAD: usize = 16 * 1024;

impl Runtime {
    /// A file of the container, `limit` bytes at most; `None` when there is no such file. Works for
    /// stopped containers too. A larger file is a failure.
    pub async fn read_file(
        &self,
        container: &str,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(process) = self.process() {
            return match process.read_file(path, limit + 1) {
                Some(bytes) if bytes.len() > limit => Err(too_large(path, limit)),
                read => Ok(read),
            };
        }
        match self.read_archive(container, path, limit).await? {
            Archive::File(bytes) => Ok(Some(bytes)),
            Archive::TooLarge => Err(too_large(path, limit)),
            // The archive endpoint does not see a tmpfs and does not follow links.
            Archive::Other => {
                let output = self
                    .helper(container, &["cat", "--"], &[path], limit)
                    .await?;
                match output.end {
                    _ if output.over_limit => Err(too_large(path, limit)),
                    _ if output.cut => Err(Failure::environment(format!(
                        "cannot read `{path}` from the container: the connection to Docker broke off"
                    ))
                    .hint("is the daemon up? try again")),
                    ExecEnd::Exited(0) => Ok(Some(output.stdout)),
                    _ => Ok(None),
                }
            }
        }
    }

    /// The first bytes of a file of the container, `most` at most; `None` when there is no such file.
    pub async fn read_start(
        &self,
        container: &str,
        path: &str,
        most: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(process) = self.process() {
            return Ok(process.read_file(path, most));
        }
        if let Some(bytes) = self.download(container, path, most).await? {
            if let Archive::File(start) = start_of_first_file(&bytes, most) {
                return Ok(Some(start));
            }
        }
        // A link, or a file of a tmpfs.
        let count = most.to_string();
        let output = self
            .helper(container, &["head", "-c", &count, "--"], &[path], most)
            .await?;
        let whole = output.end == ExecEnd::Exited(0) && !output.cut;
        Ok(whole.then_some(output.stdout))
    }

    /// Size of a file of the container, bytes; `None` when there is no such file, or when it is a
    /// link.
    pub async fn file_size(&self, container: &str, path: &str) -> Result<Option<u64>, Failure> {
        let options = ContainerArchiveInfoOptionsBuilder::default()
            .path(path)
            .build();
        if let Some(process) = self.process() {
            return Ok(process.file_size(path));
        }
        let name = checked_name(container)?;
        let asked =
            self.ask_again(|docker| docker.get_container_archive_info(name, Some(options.clone())));
        match asked.await {
            // Podman reports the path of a file even if it is not a link.
            Ok(stat) if stat.link_target.is_empty() || stat.link_target == path => {
                Ok(u64::try_from(stat.size).ok())
            }
            Ok(_) => Ok(None),
            // The answer to a HEAD has no body with details.
            Err(e) if daemon_answer(&e).is_some() => Ok(None),
            Err(e) => Err(daemon_failure(
                format!("cannot look at `{path}` in the container"),
                e,
            )),
        }
    }

    /// Makes a directory and its parents in a running container, unless they exist.
    pub async fn make_dir(&self, container: &str, path: &str) -> Result<(), Failure> {
        self.make_dirs(container, &[path]).await
    }

    /// As [`make_dir`](Self::make_dir) for several directories.
    pub async fn make_dirs(&self, container: &str, paths: &[&str]) -> Result<(), Failure> {
        let Some(first) = paths.first() else {
            return Ok(());
        };
        let output = self.twice(container, &["mkdir", "-p", "--"], paths).await?;
        match output.end {
            ExecEnd::Exited(0) => Ok(()),
            ExecEnd::NotFound(_) => {
                let bytes = folders(paths).map_err(|e| cannot_write(first).caused_by(e))?;
                self.upload(container, first, bytes).await
            }
            _ => Err(refused_copy(first, &output)),
        }
    }

    /// Writes a file (mode 0644, or 0755 if `executable`) in a running container; its directory
    /// must exist.
    pub async fn write_file(
        &self,
        container: &str,
        path: &str,
        content: &[u8],
        executable: bool,
    ) -> Result<(), Failure> {
        // Uses a shell where there is one: files from the archive endpoint do not appear on a
        // tmpfs, and a read-only container refuses them even for a writable mount. The shell prints
        // how much it wrote, because after a broken connection the end of its input looks like the
        // end of the file.
        let program = if executable {
            r#"cat > "$1" && chmod 755 "$1" && cat "$1""#
        } else {
            r#"cat > "$1" && cat "$1""#
        };
        let write = || {
            let mut request =
                ExecRequest::for_command(argv_of(["sh", "-c", program, "plimsoll", path]));
            request.stdin = Some(Input::Bytes(content.to_vec()));
            self.command_output(container, request, content.len() + 1, PATIENCE)
        };
        let mut output = write().await?;
        let whole = |o: &Output| o.end != ExecEnd::Exited(0) || o.stdout == content;
        if !whole(&output) || output.end == ExecEnd::Unknown {
            output = write().await?;
        }
        match output.end {
            ExecEnd::Exited(0) if output.stdout == content => Ok(()),
            ExecEnd::Exited(0) => Err(Failure::environment(format!(
                "cannot write `{path}` in the container: the connection to Docker broke off"
            ))
            .hint("is the daemon up? try again")),
            ExecEnd::NotFound(_) | ExecEnd::Exited(127) => {
                let mut tar = tar::Builder::new(Vec::new());
                let mut header = tar::Header::new_gnu();
                header.set_mode(if executable { 0o755 } else { 0o644 });
                header.set_size(content.len() as u64);
                let name = path.trim_start_matches('/');
                let bytes = tar
                    .append_data(&mut header, name, content)
                    .and_then(|()| tar.into_inner())
                    .map_err(|e| cannot_write(path).caused_by(e))?;
                self.upload(container, path, bytes).await
            }
            _ => Err(refused_copy(path, &output)),
        }
    }

    /// Removes a directory of ours in a running container; best effort, `true` when it is gone.
    /// Only absolute paths of at least two components are accepted.
    pub async fn remove_dir(&self, container: &str, path: &str) -> bool {
        let components: Vec<&str> = path
            .split('/')
            .filter(|c| !c.is_empty() && *c != ".")
            .collect();
        if !path.starts_with('/') || components.len() < 2 || components.contains(&"..") {
            return false;
        }
        matches!(
            self.twice(container, &["rm", "-rf", "--"], &[path]).await,
            Ok(Output {
                end: ExecEnd::Exited(0),
                ..
            })
        )
    }

    /// Runs an idempotent command, and again if its end is unknown.
    async fn twice(
        &self,
        container: &str,
        program: &[&str],
        paths: &[&str],
    ) -> Result<Output, Failure> {
        match self.helper(container, program, paths, 4096).await {
            // A container counts as gone only after two answers.
            Ok(output) if !matches!(output.end, ExecEnd::Unknown | ExecEnd::ContainerGone) => {
                Ok(output)
            }
            _ => self.helper(container, program, paths, 4096).await,
        }
    }

    /// Runs a small program of the image, or else busybox's version of it.
    async fn helper(
        &self,
        container: &str,
        program: &[&str],
        paths: &[&str],
        limit: usize,
    ) -> Result<Output, Failure> {
        let mut argv = argv_of(program.iter().chain(paths).copied());
        let run =
            |argv| self.command_output(container, ExecRequest::for_command(argv), limit, PATIENCE);
        let output = run(argv.clone()).await?;
        if !matches!(output.end, ExecEnd::NotFound(_)) {
            return Ok(output);
        }
        argv.insert(0, "busybox".to_owned());
        run(argv).await
    }

    async fn upload(&self, container: &str, path: &str, tar: Vec<u8>) -> Result<(), Failure> {
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        let (name, body) = (checked_name(container)?, body_full(tar.into()));
        let upload = async {
            let docker = self.daemon()?;
            docker.upload_to_container(name, Some(options), body).await
        };
        let cannot = |e| daemon_failure(format!("cannot write `{path}` in the container"), e);
        upload.await.map_err(cannot)
    }

    async fn read_archive(
        &self,
        container: &str,
        path: &str,
        limit: usize,
    ) -> Result<Archive, Failure> {
        Ok(match self.download(container, path, limit).await? {
            None => Archive::Other,
            Some(bytes) if bytes.len() > limit + TAR_OVERHEAD => Archive::TooLarge,
            Some(bytes) => first_file(&bytes, limit),
        })
    }

    /// The archive of a path, truncated a little after `limit` bytes; `None` if the path does not
    /// exist.
    async fn download(
        &self,
        container: &str,
        path: &str,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let name = checked_name(container)?;
        let download = || async {
            let options = DownloadFromContainerOptionsBuilder::default()
                .path(path)
                .build();
            let mut stream = self.daemon()?.download_from_container(name, Some(options));
            let mut bytes = Vec::new();
            while let Some(chunk) = stream.next().await {
                match chunk {
                    Ok(chunk) => bytes.extend_from_slice(&chunk),
                    // Podman answers 500 for what it cannot stat; `cat` finds out why.
                    Err(e) if daemon_answer(&e).is_some() => return Ok(None),
                    Err(e) => return Err(e),
                }
                if bytes.len() > limit + TAR_OVERHEAD {
                    break;
                }
            }
            Ok(Some(bytes))
        };
        let read = timeout(PATIENCE, self.ask_again(|_| download()))
            .await
            .map_err(|_| {
                Failure::environment(format!(
                    "Docker did not send `{path}` of the container within {} s",
                    PATIENCE.as_secs()
                ))
                .hint("is its disk slow, or the daemon busy? try again")
            })?;
        read.map_err(|e| daemon_failure(format!("cannot read `{path}` from the container"), e))
    }
}

fn too_large(path: &str, limit: usize) -> Failure {
    Failure::environment(format!(
        "`{path}` in the container is larger than {}, the most that is read",
        crate::units::Bytes(limit as u64)
    ))
    .hint("check that it is the right file: `docker cp CONTAINER:PATH .` fetches it to look at")
}

fn cannot_write(path: &str) -> Failure {
    Failure::environment(format!("cannot write `{path}` in the container"))
}

fn refused_copy(path: &str, output: &Output) -> Failure {
    let reason = output.stderr.lines().next_back().unwrap_or_default().trim();
    let failure = cannot_write(path);
    match (reason.is_empty(), &output.end) {
        (false, _) => Failure::environment(format!("{}: {reason}", failure.message)),
        (true, ExecEnd::ContainerGone) => Failure::run(format!(
            "{}: the container ended meanwhile",
            failure.message
        )),
        (true, end) => Failure::environment(format!("{}: {end:?}", failure.message)),
    }
}

/// An archive of empty directories.
fn folders(paths: &[&str]) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for path in paths {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        tar.append_data(&mut header, path.trim_start_matches('/'), std::io::empty())?;
    }
    tar.into_inner()
}

/// Content of an archive for one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Archive {
    /// A regular file's bytes.
    File(Vec<u8>),
    /// A regular file above the limit.
    TooLarge,
    /// Nothing, or not a regular file: a link, a folder, a device.
    Other,
}

/// The first entry of an archive, if it is a regular file of at most `limit` bytes. Its name is
/// ignored, so it cannot point elsewhere.
pub fn first_file(bytes: &[u8], limit: usize) -> Archive {
    read_first(bytes, limit, false)
}

/// The first `most` bytes of the first file, however long it is.
pub fn start_of_first_file(bytes: &[u8], most: usize) -> Archive {
    read_first(bytes, most, true)
}

fn read_first(bytes: &[u8], limit: usize, cut: bool) -> Archive {
    let mut archive = tar::Archive::new(bytes);
    let Some(Ok(entry)) = archive.entries().ok().and_then(|mut e| e.next()) else {
        return Archive::Other;
    };
    // The declared size of a sparse file differs from its bytes in the archive.
    if !entry.header().entry_type().is_file() {
        return Archive::Other;
    }
    if entry.size() > limit as u64 && !cut {
        return Archive::TooLarge;
    }
    let mut content = Vec::new();
    match entry.take(limit as u64).read_to_end(&mut content) {
        Ok(_) => Archive::File(content),
        Err(_) => Archive::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tar::{EntryType, Header};

    /// An entry whose name and link are written as they are: the builder would refuse some.
    fn archive(kind: EntryType, name: &str, link: &str, size: u64, bytes: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        let mut tar = header.as_bytes().to_vec();
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
        tar
    }

    #[test]
    fn a_file_is_its_bytes_whatever_it_is_called() {
        for name in [
            "config.json",
            "../../etc/passwd",
            "/etc/shadow",
            "-rf",
            "a\nb",
            "\x1b[2J",
        ] {
            let tar = archive(EntryType::Regular, name, "", 2, b"{}");
            assert_eq!(first_file(&tar, 2), Archive::File(b"{}".to_vec()), "{name}");
            assert_eq!(first_file(&tar, 1), Archive::TooLarge);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_none() {
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Directory,
            EntryType::Char,
            EntryType::Block,
            EntryType::Fifo,
            EntryType::GNUSparse,
            EntryType::new(b'?'),
        ] {
            let tar = archive(kind, "a", "/etc/shadow", 0, b"");
            assert_eq!(first_file(&tar, 100), Archive::Other, "{kind:?}");
        }
        for rubbish in [&b""[..], b"{}", &[0; 1024], &[b'x'; 2048]] {
            assert_eq!(first_file(rubbish, 100), Archive::Other);
        }
    }

    #[test]
    fn a_size_that_is_a_lie_costs_nothing() {
        for size in [101, 1 << 30, u64::from(u32::MAX), 1 << 62, u64::MAX] {
            let tar = archive(EntryType::Regular, "a", "", size, b"{}");
            let read = first_file(&tar, 100);
            assert!(
                matches!(read, Archive::TooLarge | Archive::Other),
                "{size}: {read:?}"
            );
        }
        // One that ends too early.
        let tar = archive(EntryType::Regular, "a", "", 100, b"{}");
        assert!(!matches!(first_file(&tar[..600], 100), Archive::TooLarge));
    }

    proptest! {
        #[test]
        fn no_bytes_give_more_than_was_asked_for(
            mut tar in proptest::collection::vec(any::<u8>(), 0..2048),
            valid in any::<bool>(),
            limit in 0..2000usize,
        ) {
            if valid && tar.len() >= 512 {
                let mut header = Header::new_gnu();
                header.as_mut_bytes().copy_from_slice(&tar[..512]);
                header.set_cksum();
                tar[..512].copy_from_slice(header.as_bytes());
            }
            if let Archive::File(content) = first_file(&tar, limit) {
                prop_assert!(content.len() <= limit);
            }
        }
    }
}
