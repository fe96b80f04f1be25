//! Installing a broker in the database of a server, and taking it out again.
//!
//! [`Broker::open`](crate::Broker::open) installs by itself where its user may. These are for where he may not: an
//! administrator installs once, and the application's user becomes a member of the role `dialoq_user`, who may execute the
//! verbs and read the views, or of `dialoq_admin`, who may also change definitions.

use crate::broker::server_driver;
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::sql::Script;
use crate::store::database::installation::install::{self, Purpose};
use crate::store::database::installation::script;
use crate::store::database::link::Driver;
use crate::store::url::StoreUrl;
use std::sync::Arc;

/// One script of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its file below `sql/<dialect>`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Makes the schema, verbs, views and roles in the database that the URL names, or brings them to this version, wholly or
/// not at all; gives what was run, nothing if everything was there. Takes away what other roles may do with what is for the owner alone
/// ([`FindingKind::ForeignPrivileges`](crate::status::FindingKind::ForeignPrivileges)). Any number of processes may do it at once.
///
/// # Errors
/// 60011 there is a schema `dialoq` of another owner, 60013 a newer Dialoq installed it, 60019 the URL is not understood,
/// 60026 it names no server, 60030 the server cannot be reached, 60034 this user may not, 60035 only part of it is there,
/// 3716 something of the user's is built on views or verbs that would be replaced.
pub async fn install(url: &str) -> Result<Vec<Step>> {
    let driver = driver(url)?;
    let mut link = driver.dedicated().await?;
    let installed = install::install(&mut *link, driver.dialect(), &mut IdSource::Random, Purpose::Command).await?;
    Ok(installed.scripts.into_iter().map(Step::of).collect())
}

/// What [`install()`] would run. Changes nothing.
///
/// # Errors
/// Those of [`install()`].
pub async fn plan(url: &str) -> Result<Vec<Step>> {
    let driver = driver(url)?;
    let mut link = driver.dedicated().await?;
    Ok(install::plan(&mut *link, driver.dialect()).await?.scripts.into_iter().map(Step::of).collect())
}

/// The text that an administrator can run by hand instead of [`install()`]: `psql -v ON_ERROR_STOP=1 -f`, `sqlcmd -b -i`. Empty
/// if there is nothing to do. Changes nothing. A new broker gets its GUID in this text, so run it in one database only.
///
/// # Errors
/// Those of [`install()`].
pub async fn plan_script(url: &str) -> Result<String> {
    let driver = driver(url)?;
    let mut link = driver.dedicated().await?;
    let plan = install::plan(&mut *link, driver.dialect()).await?;
    if plan.scripts.is_empty() {
        return Ok(String::new());
    }
    script::whole(driver.dialect(), &plan, &mut IdSource::Random)
}

/// Removes the broker from the database with all its definitions, conversations, messages and jobs; returns whether there was one.
/// The roles stay, for other databases of the server may use them.
///
/// # Errors
/// Those of [`install()`]; on PostgreSQL also 3716 an extension lives in the schema.
pub async fn uninstall(url: &str) -> Result<bool> {
    let driver = driver(url)?;
    let mut link = driver.dedicated().await?;
    install::uninstall(&mut *link, driver.dialect()).await
}

impl Step {
    fn of(script: Script) -> Self {
        Self { name: script.name, text: script.text }
    }
}

fn driver(url: &str) -> Result<Arc<dyn Driver>> {
    server_driver(&StoreUrl::parse(url)?, None)?.ok_or_else(|| {
        Error::new(
            Code::UNSUPPORTED,
            "nothing is installed in an embedded database: it is made when it is opened, and gone when its file is removed",
        )
    })
}
