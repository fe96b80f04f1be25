//! Places with small numbers, reused.

/// A list whose entries have numbers; freed numbers are used again.
#[derive(Debug, Clone)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            place
        } else {
            self.places.push(Some(value));
            u32::try_from(self.places.len() - 1).expect("fewer than 4 billion endpoints are open")
        }
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take();
        if value.is_some() {
            self.free.push(place);
        }
        value
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(place, value)| Some((place as u32, value.as_ref()?)))
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.places.reserve(more);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        self.places[place as usize].as_ref().expect("the place is taken while something points at it")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        self.places[place as usize].as_mut().expect("the place is taken while something points at it")
    }
}
