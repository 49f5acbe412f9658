//! How keys change the state. Pure.

use super::{
    super::{
        keys::Key,
        question::{Decision, Question},
        rows::Order,
    },
    Action, Page, State,
};
use crate::text::escaped;

/// The longest filter.
const MAX_FILTER_CHARS: usize = 512;

impl State {
    /// Takes a key.
    pub(crate) fn key(&mut self, key: Key) -> Action {
        match key {
            Key::Ctrl('c') => return Action::Interrupt,
            Key::Ctrl('z') => return Action::Suspend,
            Key::Ctrl('l') => return Action::Repaint,
            Key::Resized => return Action::Nothing,
            _ => self.message = None,
        }
        match &mut self.page {
            Page::Table if self.is_filtering => self.key_of_filter(key),
            Page::Table => return self.key_of_table(key),
            Page::Details { .. } => return self.key_of_details(key),
            Page::Help => match key {
                Key::Char('q') => return Action::Quit,
                _ => self.page = Page::Table,
            },
            Page::Question(question) => match question.key(key) {
                Decision::Open => {}
                Decision::Cancel => self.page = Page::Table,
                Decision::Break => {
                    let (name, token) = (question.name.clone(), question.token);
                    self.page = Page::Table;
                    self.message = Some(format!("breaking {}, token {token} ...", escaped(&name)));
                    return Action::Break { name, token };
                }
            },
        }
        Action::Nothing
    }

    fn key_of_table(&mut self, key: Key) -> Action {
        let (last, page) = (self.rows.len().saturating_sub(1), self.height);
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('?' | 'h') => self.page = Page::Help,
            Key::Char('s') => self.sort_by(Order { sort: self.order.sort.next(), is_reversed: false }),
            Key::Char('r') => self.sort_by(Order { is_reversed: !self.order.is_reversed, ..self.order }),
            Key::Char('/') => self.is_filtering = true,
            Key::Char('f') => self.freeze_or_thaw(),
            Key::Escape => {
                self.filter.clear();
                self.arrange();
            }
            Key::Down | Key::Char('j') => self.move_to(|place| (place + 1).min(last)),
            Key::Up | Key::Char('k') => self.move_to(|place| place.saturating_sub(1)),
            Key::PageDown => self.move_to(|place| (place + page).min(last)),
            Key::PageUp => self.move_to(|place| place.saturating_sub(page)),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(last),
            Key::Enter => match self.selected_row() {
                Some(row) => {
                    let name = row.view(&self.views).name.as_str().to_owned();
                    self.page = Page::Details { name, from: 0 };
                }
                None => self.message = Some("select a row first, by the arrow keys".to_owned()),
            },
            Key::Ctrl('d') => self.ask(),
            _ => {}
        }
        Action::Nothing
    }

    fn key_of_details(&mut self, key: Key) -> Action {
        let page = self.height;
        let Page::Details { from, .. } = &mut self.page else { return Action::Nothing };
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Escape | Key::Enter | Key::Left => self.page = Page::Table,
            Key::Down | Key::Char('j') => *from += 1,
            Key::Up | Key::Char('k') => *from = from.saturating_sub(1),
            Key::PageDown => *from += page,
            Key::PageUp => *from = from.saturating_sub(page),
            Key::Home | Key::Char('g') => *from = 0,
            Key::Char('f') => self.freeze_or_thaw(),
            Key::Ctrl('d') => self.ask(),
            _ => {}
        }
        Action::Nothing
    }

    fn key_of_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.extend_filter(&c.to_string()),
            Key::Paste(text) => self.extend_filter(&text),
            Key::Backspace => drop(self.filter.pop()),
            Key::Escape => {
                self.filter.clear();
                self.is_filtering = false;
            }
            Key::Enter | Key::Down | Key::Up | Key::Tab => self.is_filtering = false,
            _ => {}
        }
        self.arrange();
    }

    fn extend_filter(&mut self, text: &str) {
        let room = MAX_FILTER_CHARS.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.chars().filter(|c| !c.is_control()).take(room));
    }

    fn sort_by(&mut self, order: Order) {
        self.order = order;
        self.arrange();
        self.message = Some(format!(
            "ordered by {}{}",
            order.sort.word(),
            if order.is_reversed { ", reversed" } else { "" }
        ));
    }

    fn freeze_or_thaw(&mut self) {
        match self.frozen.take() {
            None => self.frozen = Some(None),
            Some(None) => {}
            Some(Some((views, at))) => {
                let trouble = self.trouble.take();
                self.show(views, at);
                self.trouble = trouble;
            }
        }
    }

    /// Asks whether to break the selected hold.
    fn ask(&mut self) {
        let Some(row) = self.selected_row() else {
            self.message = Some("select a hold first, by the arrow keys".to_owned());
            return;
        };
        let view = row.view(&self.views);
        let name = escaped(view.name.as_str());
        self.message = Some(match row.holder(&self.views) {
            _ if self.setting.is_readonly => {
                "no hold is broken: --readonly is given, or LEASEHOLD_AUDIT_FILE is set".to_owned()
            }
            None => format!("nobody holds {name}"),
            Some(holder) => match holder.token {
                None => format!(
                    "the hold of {name} has no token, because it is of a program other than leasehold: end that program"
                ),
                Some(token) => {
                    let question = Question::new(view.name.as_str(), holder, token, view.waiters.len());
                    self.page = Page::Question(Box::new(question));
                    return;
                }
            },
        });
    }
}
