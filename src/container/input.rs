//! What a command inside a container reads from its standard input.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// What the command reads; then comes the end of its input.
#[derive(Debug)]
pub enum Input {
    /// This.
    Bytes(Vec<u8>),
    /// What is sent, until the sender is dropped.
    Orders(mpsc::Receiver<Vec<u8>>),
}

impl Input {
    /// Writes everything. A command that does not read to the end is not an error.
    pub(super) async fn feed(self, mut into: impl AsyncWrite + Unpin) {
        match self {
            Input::Bytes(bytes) => {
                let _ = into.write_all(&bytes).await;
            }
            Input::Orders(mut orders) => {
                while let Some(order) = orders.recv().await {
                    if into.write_all(&order).await.is_err() || into.flush().await.is_err() {
                        break;
                    }
                }
            }
        }
        let _ = into.shutdown().await;
    }
}
