//! Random changes to kept inputs, from a seed: the same seed gives the same inputs.

/// SplitMix64: small, and the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below that bound; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Characters and numbers at which readers of text go wrong.
const ODD: [&str; 30] = [
    "\0",
    "\u{feff}",
    "\u{fffd}",
    "\u{ffff}",
    "\u{10ffff}",
    "\u{85}",
    "\u{2028}",
    "\u{301}",
    "\r",
    "\n",
    "\t",
    " ",
    "İ",
    "ß",
    "ſ",
    "K",
    "🚚",
    "%",
    "%00",
    "%ff",
    "\\",
    "\\u0000",
    "\\ud800",
    "\"",
    "'",
    "&#0;",
    "-1",
    "0",
    "9223372036854775808",
    "1e999",
];

/// The largest input a repetition makes, in bytes: large enough to tell square time from linear.
const LARGEST: usize = 96 << 10;

/// A kept input with one to eight changes.
pub(crate) fn mutate(random: &mut Random, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = if corpus.is_empty() { Vec::new() } else { corpus[random.below(corpus.len())].clone() };
    for _ in 0..=random.below(8) {
        change(&mut input, random, corpus, words);
    }
    if random.once_in(40) {
        repeat(&mut input, random);
    }
    input
}

/// A part of the input: where it begins and where it ends.
fn part(input: &[u8], random: &mut Random) -> (usize, usize) {
    let begin = random.below(input.len() + 1);
    let longest = if random.once_in(4) { input.len() - begin } else { (input.len() - begin).min(12) };
    (begin, begin + random.below(longest + 1))
}

fn change(input: &mut Vec<u8>, random: &mut Random, corpus: &[Vec<u8>], words: &[&str]) {
    let place = random.below(input.len() + 1);
    match random.below(10) {
        0 if !input.is_empty() => input[place.saturating_sub(1)] ^= 1 << random.below(8),
        1 if !input.is_empty() => input[place.saturating_sub(1)] = random.next() as u8,
        2 => {
            let (begin, end) = part(input, random);
            input.drain(begin..end);
        }
        3 => {
            let (begin, end) = part(input, random);
            let copied = input[begin..end].to_vec();
            input.splice(place..place, copied);
        }
        4 => input.truncate(place),
        5 if !corpus.is_empty() => {
            let other = &corpus[random.below(corpus.len())];
            let (begin, end) = part(other, random);
            input.splice(place..place, other[begin..end].iter().copied());
        }
        6 | 7 if !words.is_empty() => {
            let word = random.pick(words).as_bytes();
            let end = if random.once_in(2) { place } else { part(input, random).1.max(place) };
            input.splice(place..end, word.iter().copied());
        }
        _ => {
            let odd = random.pick(&ODD).as_bytes();
            input.splice(place..place, odd.iter().copied());
        }
    }
}

/// Writes a part of the input many times.
fn repeat(input: &mut Vec<u8>, random: &mut Random) {
    let (begin, end) = part(input, random);
    let repeated = input[begin..end].to_vec();
    let times = if repeated.is_empty() { 0 } else { (1 << random.below(17)).min(LARGEST / repeated.len()) };
    input.splice(end..end, repeated.repeat(times));
}
