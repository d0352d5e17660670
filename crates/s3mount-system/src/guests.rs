//! Clients that are answered soon, or not at all.
//!
//! Nobody waits for a place: of too many clients, the one that has been there for longest gives its place to the newest.
//! So clients that are silent keep no other one out.

use std::collections::VecDeque;
use std::future::Future;

use tokio::task::JoinHandle;

/// The clients of a listener, or of a kind of users.
#[derive(Debug)]
pub struct Guests {
    /// The oldest first.
    tasks: VecDeque<JoinHandle<()>>,
    most: usize,
}

impl Guests {
    /// Room for `most` clients at a time.
    pub fn new(most: usize) -> Self {
        Self { tasks: VecDeque::new(), most }
    }

    /// Lets a client in, who is answered by `answer`. Must be called in a runtime.
    pub fn admit(&mut self, answer: impl Future<Output = ()> + Send + 'static) {
        self.tasks.retain(|task| !task.is_finished());
        if self.tasks.len() >= self.most
            && let Some(oldest) = self.tasks.pop_front()
        {
            oldest.abort();
        }
        self.tasks.push_back(tokio::spawn(answer));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::Guests;

    #[tokio::test]
    async fn the_silent_make_room_and_the_oldest_of_them_first() {
        let mut guests = Guests::new(2);
        let silent = |guests: &mut Guests| {
            let (held, left) = oneshot::channel::<()>();
            guests.admit(async move {
                let _held = held;
                pending::<()>().await;
            });
            left
        };
        let (first, mut second) = (silent(&mut guests), silent(&mut guests));
        let (say, said) = oneshot::channel();
        guests.admit(async move {
            let _ = say.send("an answer");
        });
        assert_eq!(said.await, Ok("an answer"));
        first.await.expect_err("it was sent away");
        guests.admit(async {});
        second.try_recv().expect_err("it is silent");
        assert!(
            matches!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty)),
            "who has ended makes room"
        );
    }
}
