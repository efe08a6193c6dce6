//! Connections to a daemon over a Unix socket, with a timeout for every call.

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects, and sets the timeout of connecting, of each write and of each read. A stopped daemon accepts no connection: when
/// its queue is full, connect(2) would wait without end.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for way in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, way, Some(limit))?;
    }
    connect_socket(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether the peer runs as root or as our own user.
pub fn is_peer_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// Regression: a client waited without end when the queue of a stopped daemon was full.
    #[test]
    fn daemon_that_does_not_answer_times_out() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let limit = Duration::from_millis(50);
        let mut queue = Vec::new();
        let refused = loop {
            match connect(&path, limit) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let mut first = listener.accept().unwrap().0;
        assert!(is_peer_ours(&first));
        first.write_all(b"x").unwrap();
        queue[0].read_exact(&mut [0]).unwrap();
        assert_eq!(queue[0].read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
