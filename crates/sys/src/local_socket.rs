//! Connections to a daemon of ours over a socket in the file system, none of which waits without a limit.

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects, and sets how long connecting, each write and each read may take. A daemon that is stopped accepts no
/// connection: once its queue is full, the kernel would wait for it for ever.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for way in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, way, Some(limit))?;
    }
    connect_socket(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether root or our own user is at the other end.
pub fn is_peer_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// Regression: who asked a stopped daemon waited for ever once its queue was full.
    #[test]
    fn daemon_that_accepts_nothing_is_given_up() {
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
