//! Several names in one step: one script takes all of them, or none.

use futures_util::future::join_all;
use leasehold_core::{AllAnswer, Answer, Claim, EngineError, Fault, Grant, Hint, How, InFlightRequest};

use crate::{
    RedisEngine,
    engine::read_answer,
    outbox::{Items, Values},
    reach::Route,
    reply::{Reply, unreadable},
    scripts::Script,
};

/// The first word of an answer by which no claim is granted: see `lua/claim_all.lua`.
const NONE: &str = "none";

/// The answer of the script.
enum ScriptAnswer {
    Held(Vec<Grant>),
    None {
        answer: AllAnswer,
        /// Whether a claim of the request has something on the server.
        leaves: bool,
    },
}

impl RedisEngine {
    /// Claims all names, or none. Where servers share the slots, all names are in one slot.
    pub(crate) async fn claim_all_now(&self, claims: &[Claim]) -> Result<AllAnswer, EngineError> {
        for (index, claim) in claims.iter().enumerate() {
            if let Err(error) = self.keys(&claim.name) {
                return Ok(AllAnswer::Refused { index, error });
            }
        }
        let now = self.client.clock.now();
        if let Some(index) = claims.iter().position(|claim| self.in_flight.is_released(claim.id, now)) {
            return self.undo(claims, AllAnswer::Taken { index, hint: Hint::default() }).await;
        }
        let (route, values) = match self.send_all(claims).await {
            Ok(sent) => sent,
            Err(error) if error.fault == Fault::Denied => return self.find_denied(claims, error).await,
            Err(error) => return Err(error),
        };
        match self.read_all(claims, values)? {
            ScriptAnswer::Held(grants) => {
                let Err(error) = route.conn.wait_for_replicas(route.destination).await else {
                    return Ok(AllAnswer::Held(grants));
                };
                // Too few replicas have stored the grants.
                let refused = EngineError::new(Fault::Retry, error.message.clone());
                let answer = AllAnswer::Refused { index: 0, error: refused };
                self.undo(claims, answer).await.map_err(|_| error)
            }
            ScriptAnswer::None { answer, leaves: false } => {
                self.note_contention(claims, &answer);
                Ok(answer)
            }
            ScriptAnswer::None { answer, leaves: true } => self.undo(claims, answer).await,
        }
    }

    /// Sends the claims in one request, and returns the route to the server that answered.
    async fn send_all(&self, claims: &[Claim]) -> Result<(Route, Values), EngineError> {
        let slot = claims.first().map_or(Ok(0), |claim| self.keys(&claim.name).map(|keys| keys.slot))?;
        let mut request = self.reach.request(slot);
        loop {
            let route = request.route().await?;
            let channel = route.channel(&self.client).await?;
            let item = |claim: &Claim| {
                self.claim_item(&self.keys(&claim.name)?, claim, How::Create, false, &channel)
            };
            let items = claims.iter().map(item).collect::<Result<Items, _>>()?;
            let now = self.client.clock.now();
            let in_flight: Vec<_> =
                claims.iter().map(|claim| self.in_flight.start(claim.id, route.conn.number, now)).collect();
            let reply = match route.run(Script::ClaimAll, items).await {
                // The requests in flight count as unanswered.
                Err(refused) if refused.is_unknown() => return Err(refused.into()),
                reply => reply,
            };
            in_flight.into_iter().for_each(InFlightRequest::complete);
            match reply {
                Ok(values) => return Ok((route, values)),
                Err(refused) => request.retry(refused).await?,
            }
        }
    }

    /// Reads the answer of `lua/claim_all.lua`.
    fn read_all(&self, claims: &[Claim], values: Values) -> Result<ScriptAnswer, EngineError> {
        let layout = self.client.config.layout;
        let (count, mut reply) = (values.len(), Reply::new(values));
        let first = reply.text()?;
        if first != NONE {
            let rest = reply.all_text()?;
            let texts = std::iter::once(&first).chain(&rest);
            let grant = |(claim, text): (&Claim, &String)| match read_answer(claim, text, layout)? {
                Answer::Held(grant) => Ok(grant),
                _ => Err(unreadable()),
            };
            let grants = claims.iter().zip(texts).map(grant).collect::<Result<Vec<_>, _>>()?;
            return if count == claims.len() { Ok(ScriptAnswer::Held(grants)) } else { Err(unreadable()) };
        }
        let (index, leaves) = (reply.count()?, reply.number()? == 1);
        let claim = claims.get(index).ok_or_else(unreadable)?;
        let answer = match read_answer(claim, &reply.text()?, layout) {
            Ok(Answer::Taken(hint)) => AllAnswer::Taken { index, hint },
            Ok(Answer::Gone) => AllAnswer::Taken { index, hint: Hint::default() },
            Ok(Answer::Held(_) | Answer::Waiting(_)) => return Err(unreadable()),
            Err(error) => AllAnswer::Refused { index, error },
        };
        Ok(ScriptAnswer::None { answer, leaves })
    }

    /// Releases whatever the claims have on the server; then returns `answer`.
    async fn undo(&self, claims: &[Claim], answer: AllAnswer) -> Result<AllAnswer, EngineError> {
        let release = |releases: Vec<_>| async move { Box::pin(self.release_now(&releases)).await };
        answer.after_end_of(claims, release).await
    }

    /// The user lacks rights, and the server did nothing. Finds the first name to which the user has none.
    async fn find_denied(&self, claims: &[Claim], error: EngineError) -> Result<AllAnswer, EngineError> {
        let ask = async |claim: &Claim| {
            // Creates nothing.
            Box::pin(self.claim_full(claim, How::Ask, &self.keys(&claim.name)?)).await
        };
        let answers = join_all(claims.iter().map(ask)).await;
        for (index, answer) in answers.into_iter().enumerate() {
            if let Err(error) = answer
                && error.fault == Fault::Denied
            {
                return Ok(AllAnswer::Refused { index, error });
            }
        }
        Err(error)
    }

    /// Notes that the slot of the taken name is contended.
    fn note_contention(&self, claims: &[Claim], answer: &AllAnswer) {
        if let AllAnswer::Taken { index, .. } = answer
            && let Some(Ok(keys)) = claims.get(*index).map(|claim| self.keys(&claim.name))
        {
            self.contention.note(keys.slot, self.client.clock.now());
        }
    }
}
