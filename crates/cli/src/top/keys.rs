//! The keys that the user presses. A thread reads them from the terminal, because a read of the terminal cannot be
//! ended.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::event_loop::EventLoop;

/// The number of keys that wait to be handled. More are dropped: they come from a key that is held down, or from a
/// paste into a terminal that does not mark it.
const MAX_KEYS: usize = 4096;

/// A key, or something else that the terminal reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// A text that was pasted.
    Paste(String),
    /// The terminal has another size now.
    Resized,
}

/// The keys that were pressed and not handled yet.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    keys: VecDeque<Key>,
    /// Why no more keys can be read.
    end: Option<io::Error>,
    waker: Option<Waker>,
}

impl Keys {
    /// Starts the thread. It ends with the process.
    ///
    /// # Errors
    /// An error of the operating system: it cannot start a thread.
    pub(crate) fn read() -> io::Result<Self> {
        let keys = Self::default();
        let reader = keys.clone();
        std::thread::Builder::new().name("lh-keys".to_owned()).spawn(move || reader.read_all())?;
        Ok(keys)
    }

    /// The next key, if one was pressed. Otherwise `event_loop` wakes when one is.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(crate) fn poll(&self, event_loop: &EventLoop) -> io::Result<Option<Key>> {
        let next = poll_fn(|context| {
            let mut queue = self.queue();
            match (queue.keys.pop_front(), queue.end.take()) {
                (Some(key), end) => {
                    queue.end = end;
                    Poll::Ready(Ok(key))
                }
                (None, Some(error)) => Poll::Ready(Err(error)),
                (None, None) => {
                    queue.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        match event_loop.poll(pin!(next)) {
            Poll::Ready(key) => key.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    fn read_all(&self) {
        loop {
            let event = event::read();
            let mut queue = self.queue();
            let is_end = event.is_err();
            match event {
                Ok(event) if queue.keys.len() < MAX_KEYS => queue.keys.extend(key(event)),
                Ok(_) => {}
                Err(error) => queue.end = Some(error),
            }
            queue.waker.take().into_iter().for_each(Waker::wake);
            if is_end {
                return;
            }
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        // No code panics while it has the lock, and a queue is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of an event of the terminal; `None` for what is not used.
fn key(event: Event) -> Option<Key> {
    match event {
        Event::Key(event) if event.kind != KeyEventKind::Release => key_of(event),
        Event::Paste(text) => Some(Key::Paste(text)),
        Event::Resize(..) => Some(Key::Resized),
        _ => None,
    }
}

fn key_of(event: KeyEvent) -> Option<Key> {
    let is_ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
    let key = match event.code {
        KeyCode::Char(c) if is_ctrl => Key::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) if !event.modifiers.contains(KeyModifiers::ALT) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    };
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let pressed = |code, modifiers| key(Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(pressed(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Key::Char('G')));
        assert_eq!(pressed(KeyCode::Char('D'), KeyModifiers::CONTROL), Some(Key::Ctrl('d')));
        assert_eq!(pressed(KeyCode::Char('x'), KeyModifiers::ALT), None);
        assert_eq!(pressed(KeyCode::Enter, KeyModifiers::NONE), Some(Key::Enter));
        assert_eq!(pressed(KeyCode::F(1), KeyModifiers::NONE), None);
        let mut released = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(key(Event::Key(released)), None, "a key counts once");
        assert_eq!(key(Event::Resize(1, 1)), Some(Key::Resized));
        assert_eq!(key(Event::FocusLost), None);
    }
}
