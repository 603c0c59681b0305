//! How a command's deadline is enforced: from the host, or by `timeout` inside the container.

use super::Runtime;
use super::exec::ExecRequest;
use super::exec::argv_of;
use crate::capture::ExecEnd;
use crate::error::Failure;
use crate::sync::lock_data;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// If the host enforces the deadline, `timeout` inside waits this much longer; it covers the case
/// that plimsoll is killed.
const BACKSTOP: Duration = Duration::from_secs(30);

/// How a command's deadline is enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommandBound {
    /// The command's processes are ended from the host.
    Host,
    /// `timeout` inside the container ends it.
    Inside,
    /// Nothing enforces it reliably: no view from the host, and no `timeout` in the image.
    #[default]
    None,
}

/// The variant of `timeout` in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutProgram {
    /// Ends the whole process group.
    Gnu,
    /// Ends the command only, and leaves a timer process for a moment.
    Busybox(&'static [&'static str]),
    Missing,
}

impl Runtime {
    /// Puts `timeout` before the command if needed.
    pub(super) async fn wrap_command(
        &self,
        container: &str,
        request: &mut ExecRequest,
        visible_from_host: bool,
    ) -> Result<CommandBound, Failure> {
        let enforced_by = |otherwise| {
            if visible_from_host {
                CommandBound::Host
            } else {
                otherwise
            }
        };
        let Some(deadline) = request.deadline else {
            return Ok(enforced_by(CommandBound::None));
        };
        // For short commands it is not worth finding out which `timeout` there is.
        if visible_from_host && deadline < BACKSTOP {
            return Ok(CommandBound::Host);
        }
        let program: &[&str] = match (self.timeout_program(container).await?, visible_from_host) {
            (TimeoutProgram::Gnu, _) => &["timeout"],
            (TimeoutProgram::Busybox(program), false) => program,
            (_, true) => return Ok(CommandBound::Host),
            (TimeoutProgram::Missing, false) => return Ok(CommandBound::None),
        };
        let extra = if visible_from_host {
            BACKSTOP
        } else {
            Duration::ZERO
        };
        let seconds = (deadline + extra).as_secs_f64().ceil().max(1.0);
        let mut argv = argv_of(program.iter().copied());
        argv.extend(["-k".to_owned(), "5".to_owned(), format!("{seconds:.0}")]);
        argv.append(&mut request.argv);
        request.argv = argv;
        Ok(enforced_by(CommandBound::Inside))
    }

    /// The variant of `timeout` in the container; asked once.
    async fn timeout_program(&self, container: &str) -> Result<TimeoutProgram, Failure> {
        if let Some(known) = lock_data(&self.shared.timeouts).get(container) {
            return Ok(*known);
        }
        let mut found = TimeoutProgram::Missing;
        for program in [
            &["timeout"] as &'static [&'static str],
            &["busybox", "timeout"],
        ] {
            let argv = argv_of(program.iter().copied().chain(["--version"]));
            // Boxed, because this runs an exec too, without a wrapped deadline.
            let asked = self.plain_output(container, argv).await?;
            match asked {
                Some(text) if text.contains("BusyBox") => found = TimeoutProgram::Busybox(program),
                Some(text) if text.contains("timeout") => found = TimeoutProgram::Gnu,
                _ => continue,
            }
            break;
        }
        lock_data(&self.shared.timeouts).insert(container.to_owned(), found);
        Ok(found)
    }

    /// Output of a harmless command; `None` when it is missing.
    async fn plain_output(
        &self,
        container: &str,
        argv: Vec<String>,
    ) -> Result<Option<String>, Failure> {
        let request = ExecRequest::for_command(argv);
        let mut text = Vec::new();
        let never = CancellationToken::new();
        let run = Box::pin(self.run_command(container, request, &never, |_, bytes| {
            text.extend_from_slice(bytes);
            if text.len() > 4096 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }));
        let result = timeout(Duration::from_secs(10), run).await;
        match result {
            Ok(Ok(r)) => Ok((!matches!(r.end, ExecEnd::NotFound(_)))
                .then(|| String::from_utf8_lossy(&text).into_owned())),
            Ok(Err(e)) => Err(e),
            Err(_) => Ok(None),
        }
    }
}
