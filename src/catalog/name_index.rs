//! The ids of objects by their names.
//!
//! Objects stand in the catalog by their ids, and a name is found by comparing it with each. With 10,000 work queues, one for each
//! tenant, a push into the last one took twelve times as long as into the first. So a catalog that is asked often makes this index.

use super::objects::{fold_name, same_name};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// With fewer objects no index is made.
const FEWEST: usize = 32;

/// An index is made at this question: a catalog that is changed again at once would make it for nothing.
const QUESTIONS: u32 = 64;

/// An object that is found by its name.
pub(super) trait Named {
    /// Whether A to Z fold.
    const IS_FOLDED: bool;

    fn name(&self) -> &str;
}

/// The index of one kind of objects. What it says is proved by the object itself, and what it does not know is searched for: the
/// objects may have changed since it was made.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    questions: AtomicU32,
    ids: OnceLock<HashMap<Box<str>, i32>>,
}

impl Clone for NameIndex {
    /// The clone is about to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl NameIndex {
    pub(super) fn find<'c, T: Named>(&self, objects: &'c BTreeMap<i32, Arc<T>>, name: &str) -> Option<&'c Arc<T>> {
        let is_it = |object: &&Arc<T>| match T::IS_FOLDED {
            true => same_name(object.name(), name),
            false => object.name() == name,
        };
        let indexed = || {
            if objects.len() < FEWEST {
                return None;
            }
            if self.ids.get().is_none() && self.questions.fetch_add(1, Relaxed) < QUESTIONS {
                return None;
            }
            let ids = self
                .ids
                .get_or_init(|| objects.iter().map(|(id, object)| (folded::<T>(object.name()).into(), *id)).collect());
            objects.get(ids.get(&*folded::<T>(name))?).filter(is_it)
        };
        indexed().or_else(|| objects.values().find(is_it))
    }
}

fn folded<T: Named>(name: &str) -> Cow<'_, str> {
    match T::IS_FOLDED && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => fold_name(name).into(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(String);

    impl Named for Thing {
        const IS_FOLDED: bool = true;

        fn name(&self) -> &str {
            &self.0
        }
    }

    fn things(numbers: std::ops::Range<i32>) -> BTreeMap<i32, Arc<Thing>> {
        numbers.map(|number| (number, Arc::new(Thing(format!("Thing{number}"))))).collect()
    }

    #[test]
    fn names_are_found_with_and_without_the_index() {
        let (mut things, index) = (things(0..100), NameIndex::default());
        let find = |things: &BTreeMap<_, _>, name: &str| index.find::<Thing>(things, name).map(|thing| thing.0.clone());
        for _ in 0..=2 * QUESTIONS {
            assert_eq!(find(&things, "tHING7").as_deref(), Some("Thing7"));
            assert_eq!(find(&things, "thing100"), None);
        }
        assert!(index.ids.get().is_some(), "it is made by now");
        assert!(index.clone().ids.get().is_none());
        // The objects change after it was made.
        things.insert(200, Arc::new(Thing("later".to_owned())));
        assert_eq!(find(&things, "Later").as_deref(), Some("later"));
        things.remove(&7);
        assert_eq!(find(&things, "thing7"), None);
        things.insert(300, Arc::new(Thing("Thing7".to_owned())));
        things.insert(8, Arc::new(Thing("renamed".to_owned())));
        assert_eq!((find(&things, "thing7").as_deref(), find(&things, "thing8")), (Some("Thing7"), None));
    }

    #[test]
    fn few_objects_have_no_index() {
        let (things, index) = (things(0..9), NameIndex::default());
        for _ in 0..=2 * QUESTIONS {
            assert!(index.find(&things, "thing3").is_some());
        }
        assert!(index.ids.get().is_none());
    }
}
