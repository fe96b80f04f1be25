//! A link outside the pool, for short calls that must not wait for open transactions: notifications, polls, attempts of
//! open transactions, reads of the definitions.
//!
//! All callers of a process share it. If a request on it hangs, the others go by a second link. When they waited for it, transactions that
//! took jobs, or were noted or rolled back, kept their connections meanwhile, until the pool had none for any caller.

use crate::store::database::link::{Call, Driver, HANGING, Link, Linked};
use crate::store::database::retry::{KeptLink, call_reconnecting};
use crate::store::{BoxFuture, SqlRow};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until, timeout};

/// However slow requests have been, after so long one may hang.
const LONGEST_SLOWNESS: Duration = Duration::from_secs(60);

/// A link and one for the requests behind one that hangs, each made when it is first needed and again when it is lost. Each runs one
/// request at a time.
pub(in crate::store::database) struct ControlConnection([Shared; 2]);

struct Shared {
    kept: Mutex<Kept>,
    /// When the request that is under way began.
    began: std::sync::Mutex<Option<Instant>>,
}

struct Kept {
    driver: Arc<dyn Driver>,
    link: Option<Box<dyn Link>>,
}

/// The link during a request.
struct InUse<'c> {
    kept: MutexGuard<'c, Kept>,
    shared: &'c Shared,
}

/// The link for several requests. It is closed unless it is given back.
pub(in crate::store::database) struct LentLink<'c> {
    used: InUse<'c>,
    pub(in crate::store::database) link: Box<dyn Link>,
}

impl LentLink<'_> {
    pub(in crate::store::database) fn give_back(mut self) {
        self.used.kept.link = Some(self.link);
    }
}

impl KeptLink for Kept {
    fn kept(&mut self) -> &mut Option<Box<dyn Link>> {
        &mut self.link
    }

    fn connect(&mut self) -> BoxFuture<'_, Linked<Box<dyn Link>>> {
        Box::pin(async { Ok(self.driver.dedicated().await?) })
    }
}

impl Shared {
    fn new(driver: Arc<dyn Driver>) -> Self {
        Self { kept: Mutex::new(Kept { driver, link: None }), began: std::sync::Mutex::default() }
    }

    fn began(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin<'c>(&'c self, kept: MutexGuard<'c, Kept>) -> InUse<'c> {
        *self.began() = Some(Instant::now());
        InUse { kept, shared: self }
    }

    /// Waits until a request is under way for so long that it may hang.
    async fn hangs(&self) {
        loop {
            let at = self.began().unwrap_or_else(Instant::now) + HANGING;
            if at <= Instant::now() {
                return;
            }
            sleep_until(at).await;
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        *self.shared.began() = None;
    }
}

/// Does work on a link of a [`ControlConnection`] that may be done twice: if it has no answer after so long, once more, on the other link
/// if the first may hang. The first answer counts.
pub(in crate::store::database) async fn twice_if_it_hangs<T, F>(after: Duration, work: impl Fn() -> F) -> Linked<T>
where
    F: Future<Output = Linked<T>>,
{
    let mut first = pin!(work());
    if let Ok(answer) = timeout(after, &mut first).await {
        return answer;
    }
    first_answer(first, work()).await
}

/// After how long an attempt may hang, if the last one took so long: one that is only slow is not made twice, which would keep both links
/// from other callers, and double the load of a server that has too much.
pub(in crate::store::database) fn may_hang_after(shortest: Duration, last: Duration) -> Duration {
    (last * 3).clamp(shortest, LONGEST_SLOWNESS)
}

/// The answer of the first attempt or of the second. If the second fails, that of the first, which may only be slow: the server takes no
/// connection for the second, or it waits for what the first has locked.
pub(in crate::store::database) async fn first_answer<T>(
    mut first: Pin<&mut impl Future<Output = Linked<T>>>,
    second: impl Future<Output = Linked<T>>,
) -> Linked<T> {
    tokio::select! {
        biased;
        answer = &mut first => answer,
        answer = second => match answer {
            Err(_) => first.await,
            answer => answer,
        },
    }
}

impl ControlConnection {
    pub(in crate::store::database) fn new(driver: Arc<dyn Driver>) -> Self {
        Self([Shared::new(driver.clone()), Shared::new(driver)])
    }

    /// A link that is free. The second only if the first may hang, or has been lost: the server, at its limit, may take no other.
    async fn free(&self) -> InUse<'_> {
        let [first, second] = &self.0;
        let is_lost = first.kept.try_lock().is_ok_and(|kept| kept.link.is_none());
        // In use, it stands too.
        let stands = second.kept.try_lock().map_or(true, |kept| kept.link.is_some());
        let (first, second) = if is_lost && stands { (second, first) } else { (first, second) };
        if let Ok(kept) = first.kept.try_lock() {
            return first.begin(kept);
        }
        let behind = async {
            first.hangs().await;
            second.kept.lock().await
        };
        let mut waits = pin!(first.kept.lock());
        tokio::select! {
            biased;
            kept = &mut waits => first.begin(kept),
            kept = behind => second.begin(kept),
        }
    }

    /// Makes a call that may be repeated.
    pub(in crate::store::database) async fn call(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        call_reconnecting(&mut *self.free().await.kept, call).await
    }

    /// Makes a call that is quick and may be made twice: if its link may hang, once more on the other. The first answer counts.
    pub(in crate::store::database) async fn quick_call(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let mut used = self.free().await;
        let mut first = pin!(call_reconnecting(&mut *used.kept, call.clone()));
        if let Ok(answer) = timeout(HANGING, &mut first).await {
            return answer;
        }
        first_answer(first, self.call(call)).await
    }

    /// Lends the link; calls of others wait until it is back.
    pub(in crate::store::database) async fn lend(&self) -> Linked<LentLink<'_>> {
        let mut used = self.free().await;
        let link = match used.kept.link.take() {
            Some(link) => link,
            None => used.kept.connect().await?,
        };
        Ok(LentLink { used, link })
    }

    /// No request is under way while this is held.
    pub(in crate::store::database) async fn rest(&self) -> impl Sized + '_ {
        let [first, second] = &self.0;
        (first.kept.lock().await, second.kept.lock().await)
    }

    /// Closes the links.
    pub(in crate::store::database) async fn close(&self) {
        for shared in &self.0 {
            shared.kept.lock().await.link.take();
        }
    }
}
