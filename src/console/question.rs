//! A question to the person at the terminal.

use super::Console;
use std::io::{self, BufRead, IsTerminal as _, Write as _};

impl Console {
    /// Whether a question can be asked: a terminal shows it, and one reads the answer.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Shows a page, also when quiet, and asks. Only `y` and `yes` mean yes; the end of input is a
    /// no. Dropping it gives the question up.
    pub async fn ask_user(&self, page: &str, question: &str) -> bool {
        page.lines().for_each(|line| self.print_line(line));
        self.prompt(question);
        let (answer, answered) = tokio::sync::oneshot::channel();
        // A thread of its own, because nothing can end a read: the runtime would wait for its own.
        std::thread::spawn(move || {
            // The receiver is gone after Ctrl-C.
            let _ = answer.send(yes(&mut io::stdin().lock()));
        });
        answered.await.unwrap_or(false)
    }

    /// The question on a line that the answer ends.
    fn prompt(&self, question: &str) {
        let mut out = crate::sync::lock_data(&self.0.out);
        // A failure to write cannot be reported; the answer is then no.
        let _ = out.write_all(format!("{question} [y/N] ").as_bytes());
        let _ = out.flush();
    }
}

fn yes(input: &mut impl BufRead) -> bool {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for text in ["y\n", "yes\n", " Y \n", "YES"] {
            assert!(yes(&mut text.as_bytes()), "{text:?}");
        }
        for text in ["", "\n", "n\n", "yeah\n", "\ny\n", "\u{0}y\n"] {
            assert!(!yes(&mut text.as_bytes()), "{text:?}");
        }
        assert!(!yes(&mut &b"\xff\n"[..]));
    }
}
