//! What operators see of the table, and how they break a hold.

use std::time::Duration;

use leasehold_core::{Broken, Diagnostic, EngineError, Fault, Guarantee, Name, View};

use super::{
    client::Client,
    owner_text::{OwnerText, State},
    row::{StoredRow, free_view},
    statements::Reading,
    store::{Access, Step},
};
use crate::{client::within_request_timeout, database::Failed};

impl Client {
    pub(crate) async fn ping(&self) -> Result<(), EngineError> {
        Ok(within_request_timeout(async {
            let mut borrowed = self.pool.borrow(Access::Lock).await?;
            borrowed.conn.run(&[Step::BeginReading, Step::Rollback]).await?;
            borrowed.give_back();
            Ok(())
        })
        .await?)
    }

    pub(crate) async fn guarantee(&self) -> Result<Guarantee, EngineError> {
        Ok(within_request_timeout(async {
            let mut borrowed = self.pool.borrow(Access::Look).await?;
            borrowed.conn.guarantee().await
        })
        .await?)
    }

    /// What an operator should know of the server and the table. The requests have time limits of their own.
    pub(crate) async fn diagnose(&self) -> Result<Vec<Diagnostic>, EngineError> {
        Ok(self.pool.connector.diagnose().await?)
    }

    pub(crate) async fn show(&self, name: &Name) -> Result<View, EngineError> {
        Ok(within_request_timeout(async {
            let mut borrowed = self.pool.borrow(Access::Look).await?;
            let format = borrowed.conn.format();
            let key = format.key_of(name)?;
            let steps = [Step::BeginReading, Step::Run(format.read(&key, Reading::Plain)), Step::Rollback];
            let rows = borrowed.conn.run(&steps).await?.pop().unwrap_or_default();
            let format = borrowed.conn.format();
            let view = match rows.first() {
                Some(row) => {
                    StoredRow::read(row)?.0.view(name.clone(), format, borrowed.conn.shown_lineage())
                }
                None => free_view(format, name.clone(), &key),
            };
            borrowed.give_back();
            Ok(view)
        })
        .await?)
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        Ok(within_request_timeout(async {
            let mut borrowed = self.pool.borrow(Access::Look).await?;
            let format = borrowed.conn.format();
            let read = format.read_held(&format!("{}{prefix}", format.prefix));
            let steps = [Step::BeginReading, Step::Run(read), Step::Rollback];
            let rows = borrowed.conn.run(&steps).await?.pop().unwrap_or_default();
            let (format, lineage) = (borrowed.conn.format(), borrowed.conn.shown_lineage());
            let mut views = Vec::with_capacity(rows.len());
            for row in &rows {
                let (row, _) = StoredRow::read(row)?;
                // The server may compare names without regard to case.
                if let Some(name) = format.name_of(&row.key).filter(|name| name.as_str().starts_with(prefix))
                {
                    views.push(row.view(name, format, lineage));
                }
            }
            views.sort_by(|left, right| left.name.cmp(&right.name));
            borrowed.give_back();
            Ok(views)
        })
        .await?)
    }

    pub(crate) async fn break_hold(
        &self,
        name: &Name,
        token: u64,
        force: bool,
    ) -> Result<Broken, EngineError> {
        Ok(within_request_timeout(self.break_row(name, token, force)).await?)
    }

    /// Breaks the hold of a row: with `force` frees the row, else marks its owner.
    async fn break_row(&self, name: &Name, token: u64, force: bool) -> Result<Broken, Failed> {
        let _row_wait = self.pool.row_wait().await;
        let mut borrowed = self.pool.borrow(Access::Lock).await?;
        let key = borrowed.conn.format().key_of(name)?;
        let read = borrowed.conn.format().read(&key, Reading::Locking);
        let rows = borrowed.conn.run(&[Step::Begin, Step::Run(read)]).await?.pop().unwrap_or_default();
        let row = rows.first().map(|row| StoredRow::read(row)).transpose()?.map(|(row, _)| row);
        let row = row.filter(|row| !row.is_free);
        let (answer, change) = {
            let format = borrowed.conn.format();
            match row {
                None => (Ok(Broken::NotHeld), None),
                Some(row) if row.number() != token => {
                    (self.other_number(&row, format.layout.has_owner()), None)
                }
                Some(row) if force => {
                    let released = row
                        .ours()
                        .unwrap_or_else(|| OwnerText::claiming(leasehold_core::ClaimId([0; 16]), ""));
                    let released = released.in_state(State::Released).text(format.owner_room());
                    (Ok(Broken::Done), Some(format.free_row(&key, &released, Duration::ZERO)))
                }
                Some(row) => match row.ours() {
                    Some(ours) => {
                        let (from, room) = (row.owner.clone().unwrap_or_default(), format.owner_room());
                        let broken = ours.in_state(State::Broken).text(room);
                        (Ok(Broken::Done), format.change_owner(&key, &from, &broken))
                    }
                    None => (Err(cannot_be_asked()), None),
                },
            }
        };
        let end = if change.is_some() { Step::Commit } else { Step::Rollback };
        let steps: Vec<Step> = change.map(Step::Run).into_iter().chain([end]).collect();
        borrowed.conn.run(&steps).await?;
        borrowed.give_back();
        answer
    }

    /// The answer to an operator who names another number than that of the row.
    fn other_number(&self, row: &StoredRow, has_owner: bool) -> Result<Broken, Failed> {
        if has_owner {
            return Ok(Broken::NotHeld);
        }
        let number = row.number();
        let why = format!(
            "its row does not say by which claim it is held: break the row itself, by its token {number}"
        );
        Err(Failed::new(Fault::Denied, why))
    }
}

fn cannot_be_asked() -> Failed {
    Failed::new(
        Fault::Denied,
        "another program holds it, which cannot be asked to stop: break it with --force",
    )
}
