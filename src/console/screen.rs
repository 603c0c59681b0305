//! The whole terminal, for a program that people keep open: drawn anew at each change, keys read.

use super::Console;
use super::terminal;
use crate::error::Failure;
use crate::live::screen::TopScreen;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Between two looks at whether the screen is closed.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// What happens on an open screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenEvent {
    /// A key was pressed.
    Key(KeyCode),
    /// Ctrl-C was pressed: on an open screen it is a key, and no signal.
    Interrupt,
    /// The terminal has another size.
    Resize,
}

/// The open screen. Dropped, the terminal is as it was before.
pub struct OpenScreen {
    terminal: DefaultTerminal,
    events: UnboundedReceiver<ScreenEvent>,
}

impl Console {
    /// Whether stdin and stdout are a terminal that can be drawn on.
    pub fn has_screen(&self) -> bool {
        terminal::can_draw(&io::stdout()) && io::stdin().is_terminal()
    }

    /// Takes the whole terminal.
    ///
    /// # Errors
    /// The terminal refuses it.
    pub fn open_screen(&self) -> Result<OpenScreen, Failure> {
        let cannot = |e| Failure::environment("cannot draw on this terminal").caused_by(e);
        let terminal = ratatui::try_init().map_err(cannot)?;
        let (sender, events) = unbounded_channel();
        std::thread::spawn(move || {
            while !sender.is_closed() {
                let event = match event::poll(KEY_WAIT) {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(e) => Err(e),
                };
                let Ok(event) = event else {
                    return;
                };
                if let Some(event) = understand(&event) {
                    let _ = sender.send(event);
                }
            }
        });
        Ok(OpenScreen { terminal, events })
    }
}

impl OpenScreen {
    /// Draws what there is now.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw_screen(&mut self, screen: &TopScreen) -> Result<(), Failure> {
        let drawn = self.terminal.draw(|frame| screen.draw(frame));
        let gone = |e| Failure::environment("cannot write to the terminal").caused_by(e);
        drawn.map(drop).map_err(gone)
    }

    /// The next event; `None` once the terminal gives none any more.
    pub async fn next_event(&mut self) -> Option<ScreenEvent> {
        self.events.recv().await
    }
}

impl Drop for OpenScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn understand(event: &Event) -> Option<ScreenEvent> {
    let key = match event {
        Event::Resize(..) => return Some(ScreenEvent::Resize),
        Event::Key(key) if key.kind == KeyEventKind::Press => key,
        _ => return None,
    };
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) => Some(ScreenEvent::Interrupt),
        (KeyCode::Char(_), true) => None,
        (code, _) => Some(ScreenEvent::Key(code)),
    }
}
