//! Messages between a process and those that it has forked: JSON over a pair of sockets, each in one piece, some with a descriptor.

use ahead_sys::polling;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Largest message, bytes.
const MESSAGE_BYTES: usize = 16 << 10;

/// What a socket has received.
#[derive(Debug)]
pub enum Received<T> {
    /// The next message.
    Answer(T),
    /// None until the deadline.
    Nothing,
    /// The other end is closed, or does not keep to the messages.
    Ended,
}

/// Two sockets that are connected.
///
/// # Errors
/// No descriptor is free.
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a message, if that does not block.
///
/// # Errors
/// The other end is closed, or does not read; the message is too large.
pub fn put(socket: impl AsFd, message: &impl Serialize) -> std::io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES {
        return Err(Errno::MSGSIZE.into());
    }
    send(socket, &text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop).map_err(Into::into)
}

/// The next message. `deadline`: `None`: none.
pub fn get<T: DeserializeOwned>(socket: impl AsFd, deadline: Option<Instant>) -> Received<T> {
    let socket = socket.as_fd();
    if !polling::until(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], deadline).unwrap_or(false) {
        return Received::Nothing;
    }
    let mut text = vec![0; MESSAGE_BYTES];
    match recv(socket, &mut text[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) | Err(_) => Received::Ended,
        Ok((_, bytes)) => {
            serde_json::from_slice(&text[..bytes.min(MESSAGE_BYTES)]).map_or(Received::Ended, Received::Answer)
        }
    }
}

/// Gives a descriptor to the other end, if that does not block.
///
/// # Errors
/// The other end is closed, or does not read.
pub fn give(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let given = [descriptor];
    message.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(socket, &[IoSlice::new(b"x")], &mut message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}

/// Waits for the next descriptor that the other end gives. `None`: it has ended.
pub fn taken(socket: impl AsFd) -> Option<OwnedFd> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Err(Errno::INTR) => continue,
            Err(_) => return None,
            Ok(message) if message.bytes == 0 => return None,
            Ok(_) => {}
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut given) = message
                && let Some(given) = given.next()
            {
                return Some(given);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_until_the_other_end_is_closed() {
        let (ours, theirs) = pair().unwrap();
        assert!(matches!(get::<u32>(&ours, Some(Instant::now())), Received::Nothing));
        put(&theirs, &7u32).unwrap();
        put(&theirs, &"x").unwrap();
        assert!(matches!(get(&ours, None), Received::Answer(7u32)));
        assert!(matches!(get::<u32>(&ours, None), Received::Ended), "it is no number");
        assert!(put(&theirs, &"x".repeat(MESSAGE_BYTES)).is_err());
        drop(theirs);
        assert!(matches!(get::<u32>(&ours, None), Received::Ended));
        assert!(put(&ours, &7u32).is_err());
    }

    #[test]
    fn given_descriptor_is_the_same_file() {
        let ((ours, theirs), file) = (pair().unwrap(), tempfile::tempfile().unwrap());
        give(&theirs, file.as_fd()).unwrap();
        let taken_file = taken(&ours).unwrap();
        let number = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(number(taken_file.as_fd()), number(file.as_fd()));
        drop(theirs);
        assert!(taken(&ours).is_none());
    }
}
