//! Walking over tokens, with errors that name the expected token and its place.

use super::lexer::Token;
use crate::error::{Code, Error, Position, Result};

/// The schema that queues and XML schema collections live in; there is no other.
const SCHEMA: &str = "dbo";

/// Keywords that are names only in brackets or quotes, so that a missing name is reported as missing.
const RESERVED: [&str; 14] = [
    "ADD",
    "ALTER",
    "ANY",
    "AS",
    "AUTHORIZATION",
    "BY",
    "CREATE",
    "DATABASE",
    "DROP",
    "EXECUTE",
    "FOR",
    "ON",
    "SET",
    "WITH",
];

/// Words that begin statements, Dialoq's or Service Broker's other ones.
const BEGINNINGS: [&str; 14] = [
    "CREATE", "ALTER", "DROP", "USE", "GRANT", "DENY", "REVOKE", "BEGIN", "SEND", "RECEIVE", "END", "GET", "MOVE",
    "WAITFOR",
];

/// The tokens of a script and the parser's position.
pub(super) struct Cursor {
    tokens: Vec<(Token, Position)>,
    at: usize,
}

impl Cursor {
    /// Before the first of those tokens, whose last one is never passed.
    pub(super) fn new(tokens: Vec<(Token, Position)>) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) fn token(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(super) fn position(&self) -> Position {
        self.tokens[self.at].1
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    /// Whether the next token is that keyword.
    pub(super) fn is_word(&self, keyword: &str) -> bool {
        matches!(self.token(), Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// Passes that keyword if it is next.
    pub(super) fn eat_word(&mut self, keyword: &str) -> bool {
        let is_next = self.is_word(keyword);
        if is_next {
            self.advance();
        }
        is_next
    }

    /// Passes that symbol if it is next.
    pub(super) fn eat_symbol(&mut self, symbol: char) -> bool {
        let is_next = *self.token() == Token::Symbol(symbol);
        if is_next {
            self.advance();
        }
        is_next
    }

    /// Passes these keywords.
    pub(super) fn words(&mut self, keywords: &str) -> Result<()> {
        for keyword in keywords.split(' ') {
            if !self.eat_word(keyword) {
                return Err(self.unexpected(keyword));
            }
        }
        Ok(())
    }

    /// Passes that symbol.
    pub(super) fn symbol(&mut self, symbol: char) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    /// Passes one of these keywords and returns its meaning.
    pub(super) fn one_of<T: Clone>(&mut self, choices: &[(&str, T)]) -> Result<T> {
        if let Some((_, chosen)) = choices.iter().find(|(keyword, _)| self.is_word(keyword)) {
            self.advance();
            return Ok(chosen.clone());
        }
        Err(self.unexpected(&either(&choices.iter().map(|(keyword, _)| *keyword).collect::<Vec<_>>())))
    }

    /// `= ON` or `= OFF`
    pub(super) fn equals_on_off(&mut self) -> Result<bool> {
        self.symbol('=')?;
        self.on_off()
    }

    /// `ON` or `OFF`
    pub(super) fn on_off(&mut self) -> Result<bool> {
        self.one_of(&[("ON", true), ("OFF", false)])
    }

    /// The name of an object outside any schema.
    pub(super) fn name(&mut self, what: &str) -> Result<String> {
        let (Token::Word(name) | Token::Quoted(name)) = self.token() else {
            return Err(self.unexpected(&format!("the name of {what}")));
        };
        if RESERVED.iter().any(|keyword| self.is_word(keyword)) {
            let expected = format!("the name of {what} (a keyword is a name only in [brackets])");
            return Err(self.unexpected(&expected));
        }
        let name = name.clone();
        self.advance();
        Ok(name)
    }

    /// The name of an object in the only schema: `name`, `dbo.name`, `database.dbo.name` or `database..name`.
    pub(super) fn name_in_schema(&mut self, what: &str) -> Result<String> {
        let position = self.position();
        let (schema, name) = self.qualified(what)?;
        match schema {
            Some(schema) => Err(unsupported(format!(
                "{what} '{schema}.{name}' is in schema '{schema}'; there are no schemas but '{SCHEMA}', leave it out"
            ))
            .at(position)),
            None => Ok(name),
        }
    }

    /// A name with its schema; the schema is `None` if it is the usual one.
    pub(super) fn qualified(&mut self, what: &str) -> Result<(Option<String>, String)> {
        let mut parts = vec![self.name(what)?];
        while parts.len() < 3 && self.eat_symbol('.') {
            let is_left_out = parts.len() == 1 && *self.token() == Token::Symbol('.');
            parts.push(if is_left_out { SCHEMA.to_owned() } else { self.name(what)? });
        }
        let name = parts.pop().unwrap_or_default();
        let schema = parts.pop().filter(|schema| !schema.eq_ignore_ascii_case(SCHEMA));
        Ok((schema, name))
    }

    /// A string literal.
    pub(super) fn text(&mut self, what: &str) -> Result<String> {
        let Token::Text(text) = self.token() else {
            return Err(self.unexpected(&format!("{what} as a string in single quotes")));
        };
        let text = text.clone();
        self.advance();
        Ok(text)
    }

    /// A whole number, perhaps negative.
    pub(super) fn integer(&mut self, what: &str) -> Result<i64> {
        let position = self.position();
        let sign = if self.eat_symbol('-') { "-" } else { "" };
        let Token::Number(digits) = self.token() else {
            return Err(self.unexpected(&format!("{what} as a whole number")));
        };
        let number = format!("{sign}{digits}");
        self.advance();
        number.parse().map_err(|_| Error::out_of_range(what, number, "a number of at most 18 digits").at(position))
    }

    /// Checks that the statement ends here; `options` are the possible continuations.
    pub(super) fn end_of_statement(&self, options: &str) -> Result<()> {
        let is_end = match self.token() {
            Token::End | Token::Go(_) | Token::Symbol(';') => true,
            Token::Word(_) => BEGINNINGS.iter().any(|beginning| self.is_word(beginning)),
            _ => false,
        };
        if is_end { Ok(()) } else { Err(self.unexpected(options)) }
    }

    /// 60004: the expected token, and the one found.
    pub(super) fn unexpected(&self, expected: &str) -> Error {
        let text = format!("expected {expected}, found {}", self.token());
        Error::new(Code::SYNTAX, text).at(self.position())
    }

    /// 60004: an option given twice.
    pub(super) fn given_twice(&self, option: &str) -> Error {
        Error::new(Code::SYNTAX, format!("{option} is given twice; give it once")).at(self.position())
    }

    /// Passes the keyword of an option that may be given once, and keeps its value.
    pub(super) fn once<T>(
        &mut self,
        slot: &mut Option<T>,
        option: &str,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        if slot.is_some() {
            return Err(self.given_twice(option));
        }
        self.advance();
        *slot = Some(read(self)?);
        Ok(())
    }
}

/// 60026: a feature of Service Broker that Dialoq does not have, with the reason.
pub(super) fn unsupported(why: impl Into<String>) -> Error {
    Error::new(Code::UNSUPPORTED, why)
}

/// `A, B or C`
pub(super) fn either(choices: &[&str]) -> String {
    match choices {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
