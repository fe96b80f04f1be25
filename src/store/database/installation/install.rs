//! Installs the schema in a database, and removes it.
//!
//! Every process that opens a broker runs this. If the schema has this version, one read finds that out, with the
//! rights of a user and without a lock. Otherwise the missing scripts run in one transaction, under a lock that admits
//! one installer. Verbs, views and roles are replaced whole if one text of them differs.

use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::sql::Script;
use crate::store::SqlRow;
use crate::store::database::calls::put;
use crate::store::database::dialect::Dialect;
use crate::store::database::link::{Arg, Call, Link};
use crate::store::database::retry::{INSTALLATION, INSTALLATION_ATTEMPTS};

/// The name of the installer in the table `installed`.
const INSTALLER: &str = concat!("dialoq ", env!("CARGO_PKG_VERSION"));

/// The result of an installation.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    /// The scripts that were run, in order; none if the schema was current.
    pub scripts: Vec<Script>,
}

/// What an installation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A process opens the broker. It leaves rights of other roles as they are: to correct them replaces all verbs, which open transactions may
    /// use.
    Opening,
    /// A user asks for it.
    Command,
}

/// Brings the schema to this version, wholly or not at all; a broker with the built-in objects is in it then.
///
/// # Errors
/// 60010 open transactions use functions or views that the installation replaces; 60011 schema `dialoq` has an owner who is
/// not trusted; 60013 a newer Dialoq installed it; 60034 this user lacks a right, which the message names; 60035 only part of it is there; and those of
/// the link.
pub async fn install(
    link: &mut dyn Link,
    dialect: &Dialect,
    ids: &mut IdSource,
    purpose: Purpose,
) -> Result<Installed> {
    let found = SchemaState::read_for(purpose, link, dialect).await?;
    if found.steps(dialect)?.is_empty() {
        return Ok(Installed::default());
    }
    found.may_install(dialect)?;
    let mut attempts = 0;
    loop {
        link.begin().await?;
        let done = install_locked(link, dialect, ids, purpose).await;
        if let Some(done) = end_attempt(link, done, &mut attempts).await {
            return done;
        }
    }
}

/// Ends the transaction of one attempt. `None`, after a pause, if open transactions use objects that it replaces; 60010 if
/// they did at every attempt.
async fn end_attempt<T>(link: &mut dyn Link, done: Result<T>, attempts: &mut u32) -> Option<Result<T>> {
    *attempts += 1;
    match end(link, done).await {
        Err(error) if ![Code::DEADLOCK, Code::LOCK_TIMEOUT].contains(&error.code()) => Some(Err(error)),
        Err(error) if *attempts == INSTALLATION_ATTEMPTS => Some(Err(in_use(error))),
        Err(_) => {
            tokio::time::sleep(INSTALLATION).await;
            None
        }
        Ok(done) => Some(Ok(done)),
    }
}

fn in_use(cause: Error) -> Error {
    let message = format!(
        "open transactions used the broker's tables or views at each of {INSTALLATION_ATTEMPTS} tries: {}; end them, then \
         try again",
        cause.message()
    );
    Error::new(Code::STORE_OWNED, message).caused_by(cause)
}

/// Commits the transaction if its work succeeded, else rolls it back.
async fn end<T>(link: &mut dyn Link, done: Result<T>) -> Result<T> {
    match done {
        Ok(done) => match link.commit().await {
            Ok(()) => Ok(done),
            Err(failure) => {
                if failure.is_link_usable {
                    // A refused COMMIT may leave the transaction open. If this fails too, the link is closed.
                    let _ = link.rollback().await;
                }
                Err(failure.into())
            }
        },
        Err(error) => {
            // The first error explains more than that of a rollback on a lost link.
            let _ = link.rollback().await;
            Err(error)
        }
    }
}

/// Checks that the schema has this version, and installs nothing.
///
/// # Errors
/// 60035 it is missing, or has an earlier version; and those of [`install`].
pub async fn check(link: &mut dyn Link, dialect: &Dialect) -> Result<()> {
    let found = SchemaState::read(link, dialect).await?;
    if found.missing(dialect)?.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Code::SCHEMA_MISSING,
        format!(
            "database '{}' has {}; `dialoq install --db {}://...` installs it",
            found.database_name,
            found.shortage(),
            dialect.name
        ),
    ))
}

/// The steps that an installation would run.
#[derive(Debug)]
pub struct Plan {
    /// The scripts that would be run, in order; none if the schema is current.
    pub scripts: Vec<Script>,
    /// The database has no broker yet.
    pub is_new: bool,
}

/// The steps that [`install`] would run. Changes nothing.
///
/// # Errors
/// Those of [`install`].
pub async fn plan(link: &mut dyn Link, dialect: &Dialect) -> Result<Plan> {
    let found = SchemaState::read_for(Purpose::Command, link, dialect).await?;
    let scripts = found.steps(dialect)?;
    if !scripts.is_empty() {
        found.may_install(dialect)?;
    }
    Ok(Plan { scripts, is_new: !found.has_installed })
}

/// Removes the schema with all conversations and definitions; returns whether there was one.
///
/// # Errors
/// 60010 open transactions use objects of it; 60011 schema `dialoq` has another owner; 60034 this user lacks a
/// right; 3716 objects of the user's depend on ours, or an extension lives in the schema; and those of the link.
pub async fn uninstall(link: &mut dyn Link, dialect: &Dialect) -> Result<bool> {
    let found = SchemaState::read(link, dialect).await?;
    if !found.has_schema {
        return Ok(false);
    }
    if !found.has_installed {
        return Err(found.foreign());
    }
    found.may_uninstall(dialect)?;
    let mut attempts = 0;
    loop {
        link.begin().await?;
        let done = remove_locked(link, dialect).await;
        if let Some(done) = end_attempt(link, done, &mut attempts).await {
            return done;
        }
    }
}

/// Removes the schema in a transaction: another session may have done so while this one waited for the lock.
async fn remove_locked(link: &mut dyn Link, dialect: &Dialect) -> Result<bool> {
    script(link, dialect, dialect.install.lock).await?;
    let is_there = SchemaState::read(link, dialect).await?.has_schema;
    if is_there {
        script(link, dialect, dialect.drop).await?;
    }
    Ok(is_there)
}

/// Installs in a transaction: another installer may have done so while this one waited for the lock.
async fn install_locked(
    link: &mut dyn Link,
    dialect: &Dialect,
    ids: &mut IdSource,
    purpose: Purpose,
) -> Result<Installed> {
    script(link, dialect, dialect.install.lock).await?;
    let found = SchemaState::read_for(purpose, link, dialect).await?;
    let missing = found.steps(dialect)?;
    if missing.is_empty() {
        return Ok(Installed::default());
    }
    found.may_install(dialect)?;
    if !found.has_installed {
        script(link, dialect, dialect.install.begin).await?;
    }
    let mut is_cleared = false;
    for step in &missing {
        // The logic uses the tables, so it is removed before they change.
        if !std::mem::replace(&mut is_cleared, true) && found.has_installed {
            script(link, dialect, dialect.install.clear).await?;
        }
        script(link, dialect, step.text).await?;
    }
    if !found.has_installed {
        let catalog = Catalog::with_builtins(ids.next_id());
        for call in put::builtins(&catalog) {
            link.call(call).await?;
        }
    }
    let hash = logic_hash(dialect);
    link.call(record(dialect, &hash, version_before(dialect, &missing))).await?;
    Ok(Installed { scripts: missing })
}

/// The state of schema `dialoq` in a database, and the rights of this user.
#[derive(Debug)]
struct SchemaState {
    has_schema: bool,
    has_installed: bool,
    /// Whether the roles exist and may use the schema and read its version: a copy restored without privileges has taken both away.
    has_roles: bool,
    /// Whether what the installation has made is marked; a copy without comments is not.
    is_marked: bool,
    /// For the command: other roles have rights on what is for the owner alone, or may have.
    has_foreign_rights: bool,
    objects: i64,
    /// Why the schema is not to be trusted, whatever it holds.
    distrust: Option<String>,
    missing_to_use: Option<String>,
    missing_to_install: Option<String>,
    missing_to_remove: Option<String>,
    user_name: String,
    database_name: String,
    version: Option<Version>,
}

/// The row of `installed`.
#[derive(Debug)]
struct Version {
    schema_version: i64,
    logic_hash: String,
    installed_by: String,
}

impl SchemaState {
    async fn read_for(purpose: Purpose, link: &mut dyn Link, dialect: &Dialect) -> Result<Self> {
        let mut found = Self::read(link, dialect).await?;
        if purpose == Purpose::Command && dialect.corrects_rights && found.version.is_some() {
            let is_clean = link.read(dialect.texts.doctor.foreign_privileges).await?.is_empty();
            // Which routines are for no role is known once they are marked.
            found.has_foreign_rights = !(is_clean && found.is_marked);
        }
        Ok(found)
    }

    async fn read(link: &mut dyn Link, dialect: &Dialect) -> Result<Self> {
        let rows = link.read(dialect.install.schema_state).await?;
        let row = rows.first().ok_or_else(|| no_row("the question what is installed"))?;
        let mut found = Self {
            has_schema: row.get::<i64>("has_schema")? != 0,
            has_installed: row.get::<i64>("has_installed")? != 0,
            has_roles: row.get::<i64>("has_roles")? != 0,
            is_marked: row.get::<i64>("is_marked")? != 0,
            has_foreign_rights: false,
            objects: row.get("objects")?,
            distrust: row.get("distrust")?,
            missing_to_use: row.get("missing_to_use")?,
            missing_to_install: row.get("missing_to_install")?,
            missing_to_remove: row.get("missing_to_remove")?,
            user_name: row.get("user_name")?,
            database_name: row.get("database_name")?,
            version: None,
        };
        if found.has_installed && found.missing_to_use.is_none() {
            let rows = link.read(dialect.install.version).await?;
            found.version = rows.first().map(Version::read).transpose()?;
        }
        Ok(found)
    }

    /// The scripts that are missing or differ; whether the user may run them is another question.
    fn missing(&self, dialect: &Dialect) -> Result<Vec<Script>> {
        if let Some(distrust) = &self.distrust {
            return Err(Error::new(
                Code::STORE_FOREIGN,
                format!("schema 'dialoq' of database '{}' is not to be trusted: {distrust}", self.database_name),
            ));
        }
        if !self.has_installed {
            if self.objects > 0 {
                return Err(self.foreign());
            }
            return Ok(dialect.schema.iter().chain(dialect.logic()).copied().collect());
        }
        if let Some(missing) = &self.missing_to_use {
            return Err(Error::new(
                Code::ACCESS_DENIED,
                format!(
                    "user '{}' may not use the broker of database '{}': it lacks {missing}",
                    self.user_name, self.database_name
                ),
            ));
        }
        let Some(version) = &self.version else {
            return Err(self.partial("its table 'installed' has no row"));
        };
        let known = i64::from(schema_version(dialect));
        if version.schema_version > known {
            return Err(Error::new(
                Code::STORE_NEWER,
                format!(
                    "the broker of database '{}' was installed by {}: its tables have version {}, this {INSTALLER} knows \
                     {known}; use the newer one",
                    self.database_name, version.installed_by, version.schema_version
                ),
            ));
        }
        let scripts = usize::try_from(version.schema_version).ok().and_then(|stands| dialect.schema.get(stands..));
        let scripts = scripts.ok_or_else(|| self.partial("the version of its tables is negative"))?;
        // Of two versions that know the same tables, the newer logic serves both.
        let is_older = release(INSTALLER) < release(&version.installed_by);
        if scripts.is_empty() && (is_older || version.logic_hash == logic_hash(dialect)) {
            return Ok(Vec::new());
        }
        Ok(scripts.iter().chain(dialect.logic()).copied().collect())
    }

    /// The scripts of an installation: those that are missing. If only the roles are, because they belong to the server and a
    /// copy of the database on another server has none, or by the command if other roles have rights that they should not: the logic, which
    /// makes the roles and grants and revokes rights. A user who may not install does without.
    fn steps(&self, dialect: &Dialect) -> Result<Vec<Script>> {
        let missing = self.missing(dialect)?;
        let is_ours = self.version.as_ref().is_some_and(|version| version.logic_hash == logic_hash(dialect));
        let needs_rights = !self.has_roles || self.has_foreign_rights;
        if missing.is_empty() && is_ours && needs_rights && self.missing_to_install.is_none() {
            return Ok(dialect.logic().copied().collect());
        }
        Ok(missing)
    }

    fn may_install(&self, dialect: &Dialect) -> Result<()> {
        let Some(missing) = &self.missing_to_install else { return Ok(()) };
        Err(Error::new(
            Code::ACCESS_DENIED,
            format!(
                "database '{}' has {}, and user '{}' may not install it: it lacks {missing}; a user who has that can run \
                 `dialoq install --db {}://...`",
                self.database_name,
                self.shortage(),
                self.user_name,
                dialect.name
            ),
        ))
    }

    fn may_uninstall(&self, dialect: &Dialect) -> Result<()> {
        let Some(missing) = &self.missing_to_remove else { return Ok(()) };
        Err(Error::new(
            Code::ACCESS_DENIED,
            format!(
                "user '{}' may not take the broker out of database '{}': it lacks {missing}; a user who has that can run \
                 `dialoq uninstall --db {}://...`",
                self.user_name, self.database_name, dialect.name
            ),
        ))
    }

    /// What it has in place of this version, for error messages.
    fn shortage(&self) -> &'static str {
        if self.has_installed { "a broker of an earlier version of Dialoq" } else { "no broker" }
    }

    fn foreign(&self) -> Error {
        Error::new(
            Code::STORE_FOREIGN,
            format!(
                "database '{}' has a schema 'dialoq' with {} objects that Dialoq did not install; use another database, or \
                 remove that schema",
                self.database_name, self.objects
            ),
        )
    }

    fn partial(&self, why: &str) -> Error {
        Error::new(
            Code::SCHEMA_MISSING,
            format!(
                "the schema 'dialoq' of database '{}' is not whole: {why}; restore a backup, or `dialoq uninstall` and install \
                 it again",
                self.database_name
            ),
        )
    }
}

impl Version {
    fn read(row: &SqlRow) -> Result<Self> {
        Ok(Self {
            schema_version: row.get("schema_version")?,
            logic_hash: row.get("logic_hash")?,
            installed_by: row.get("installed_by")?,
        })
    }
}

/// The version to which the schema scripts bring the tables.
fn schema_version(dialect: &Dialect) -> i32 {
    i32::try_from(dialect.schema.len()).unwrap_or(i32::MAX)
}

/// The version of the tables that an installation of these scripts begins with.
pub(in crate::store::database) fn version_before(dialect: &Dialect, scripts: &[Script]) -> i32 {
    let of_tables = |script: &&Script| dialect.schema.iter().any(|known| known.name == script.name);
    schema_version(dialect) - i32::try_from(scripts.iter().filter(of_tables).count()).unwrap_or(0)
}

/// The call that records the installation.
pub(in crate::store::database) fn record<'a>(dialect: &Dialect, hash: &'a str, version_before: i32) -> Call<'a> {
    let args = vec![Arg::Int(schema_version(dialect)), Arg::Text(hash), Arg::Text(INSTALLER), Arg::Int(version_before)];
    Call { name: "record_installation", args }
}

/// Differs if any text of the logic does: FNV-1a over 128 bits. It is not cryptographic: collisions need not resist an
/// attacker.
pub(in crate::store::database) fn logic_hash(dialect: &Dialect) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let texts = dialect.logic().flat_map(|script| [script.name, script.text]);
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

/// The numbers of `dialoq 1.2.3`; another text counts as older than every version.
fn release(installer: &str) -> Vec<u32> {
    let numbers = installer.rsplit(' ').next().unwrap_or_default().split(['.', '-', '+']);
    numbers.take(3).map_while(|number| number.parse().ok()).collect()
}

/// Runs a script, cut into batches where the dialect wants that.
async fn script(link: &mut dyn Link, dialect: &Dialect, text: &str) -> Result<()> {
    for batch in batches(dialect, text) {
        link.script(&batch).await?;
    }
    Ok(())
}

/// The parts of a script that are sent one by one.
pub(in crate::store::database) fn batches(dialect: &Dialect, text: &str) -> Vec<String> {
    if !dialect.has_batches {
        return vec![text.to_owned()];
    }
    let (mut found, mut batch) = (Vec::new(), String::new());
    for line in text.lines().chain(["GO"]) {
        if !line.trim().eq_ignore_ascii_case("GO") {
            batch.push_str(line);
            batch.push('\n');
            continue;
        }
        let done = std::mem::take(&mut batch);
        if !done.trim().is_empty() {
            found.push(done);
        }
    }
    found
}

/// A text without the lines that are comments.
pub(in crate::store::database) fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("--")).map(|line| format!("{line}\n")).collect()
}

fn no_row(what: &str) -> Error {
    Error::new(Code::SCHEMA_MISSING, format!("{what} gave no row"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert!(release("dialoq 0.9.10") > release("dialoq 0.9.9"));
        assert!(release("dialoq 0.10.0-rc.1") > release("dialoq 0.9.9"));
        assert!(release("by hand") < release("dialoq 0.0.1"));
        assert_eq!(release(INSTALLER).len(), 3);
    }
}
