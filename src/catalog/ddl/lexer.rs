//! From characters to tokens.

use crate::error::Position;
use std::fmt;

/// The most characters of a token that an error shows.
const SHOWN_CHARS: usize = 40;

/// The smallest piece of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or a plain name.
    Word(String),
    /// A name in brackets or double quotes, without them.
    Quoted(String),
    /// A string, without its quotes.
    Text(String),
    /// Digits.
    Number(String),
    /// A punctuation character.
    Symbol(char),
    /// A GO line, with its count.
    Go(Option<String>),
    /// Nothing is left.
    End,
    /// The script cannot be read further, with the reason. No token follows it.
    Unreadable(String),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| match text.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        };
        match self {
            Self::Word(word) => write!(f, "{}", shown(word)),
            Self::Quoted(name) => write!(f, "[{}]", shown(name)),
            Self::Text(text) => write!(f, "'{}'", shown(text)),
            Self::Number(digits) => write!(f, "{}", shown(digits)),
            Self::Symbol(symbol) => write!(f, "'{symbol}'"),
            Self::Go(_) => write!(f, "GO"),
            Self::End => write!(f, "the end of the script"),
            Self::Unreadable(why) => write!(f, "{why}"),
        }
    }
}

/// All tokens of a script with their positions; the last is [`Token::End`] or [`Token::Unreadable`].
pub(super) fn tokens(script: &str) -> Vec<(Token, Position)> {
    let mut lexer = Lexer {
        rest: script.trim_start_matches('\u{feff}'),
        position: Position { line: 1, column: 1 },
        is_line_start: true,
    };
    let mut tokens = Vec::new();
    loop {
        let (token, position) = lexer.next();
        let is_last = matches!(token, Token::End | Token::Unreadable(_));
        tokens.push((token, position));
        if is_last {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    position: Position,
    /// Whether only white space stands before `rest` on its line.
    is_line_start: bool,
}

impl Lexer<'_> {
    fn next(&mut self) -> (Token, Position) {
        if let Err((why, position)) = self.skip_blanks() {
            return (Token::Unreadable(why), position);
        }
        let position = self.position;
        let is_line_start = self.is_line_start;
        let token = match self.peek() {
            None => Token::End,
            Some('[') => self.delimited(']', "a name in brackets", Token::Quoted),
            Some('"') => self.delimited('"', "a name in double quotes", Token::Quoted),
            Some('\'') => self.delimited('\'', "a string", Token::Text),
            Some('N' | 'n') if self.rest[1..].starts_with('\'') => {
                self.bump();
                self.delimited('\'', "a string", Token::Text)
            }
            Some(first) if is_word_start(first) => {
                let word = self.take_while(is_word_part);
                if is_line_start && word.eq_ignore_ascii_case("go") { self.go(word) } else { Token::Word(word) }
            }
            Some(first) if first.is_ascii_digit() => Token::Number(self.take_while(|c| c.is_ascii_digit())),
            Some(symbol @ ('(' | ')' | ',' | '=' | ';' | '.' | '-' | '+' | ':')) => {
                self.bump();
                Token::Symbol(symbol)
            }
            Some(other) => Token::Unreadable(format!(
                "the character {other:?}, which no statement has; put names that are not plain words in [brackets]"
            )),
        };
        self.is_line_start = false;
        (token, position)
    }

    /// `GO` at the start of a line is a separator if nothing but a count follows on the line.
    fn go(&mut self, word: String) -> Token {
        let line = self.rest.split('\n').next().unwrap_or_default();
        let line = line.split("--").next().unwrap_or_default();
        let count = line.trim().trim_end_matches(';').trim_end();
        if !count.chars().all(|c| c.is_ascii_digit()) {
            return Token::Word(word);
        }
        let count = (!count.is_empty()).then(|| count.to_owned());
        for _ in line.chars() {
            self.bump();
        }
        Token::Go(count)
    }

    fn skip_blanks(&mut self) -> Result<(), (String, Position)> {
        loop {
            if self.rest.starts_with("--") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.bump();
                }
            } else if self.rest.starts_with("/*") {
                let opened = self.position;
                let mut depth = 0_usize;
                loop {
                    if self.rest.starts_with("/*") {
                        depth += 1;
                        self.bump();
                    } else if self.rest.starts_with("*/") {
                        depth -= 1;
                        self.bump();
                    }
                    if self.bump().is_none() {
                        return Err(("a comment that is not closed; close it with */".to_owned(), opened));
                    }
                    if depth == 0 {
                        break;
                    }
                }
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.bump();
            } else {
                return Ok(());
            }
        }
    }

    /// Reads up to the closing character; doubled, it stands for itself.
    fn delimited(&mut self, close: char, what: &str, token: fn(String) -> Token) -> Token {
        let mut text = String::new();
        self.bump();
        loop {
            match self.bump() {
                None => return Token::Unreadable(format!("{what} that is not closed; close it with {close}")),
                Some(found) if found == close => {
                    if self.peek() != Some(close) {
                        return token(text);
                    }
                    self.bump();
                    text.push(close);
                }
                Some(other) => text.push(other),
            }
        }
    }

    fn take_while(&mut self, is_part: fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|c| is_part(*c)) {
            text.push(next);
            self.bump();
        }
        text
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        if next == '\n' {
            self.position = Position { line: self.position.line.saturating_add(1), column: 1 };
            self.is_line_start = true;
        } else {
            self.position.column = self.position.column.saturating_add(1);
        }
        Some(next)
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '#' | '@')
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '#' | '@' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Vec<Token> {
        tokens(script).into_iter().map(|(token, _)| token).collect()
    }

    fn word(text: &str) -> Token {
        Token::Word(text.into())
    }

    #[test]
    fn quotes_and_brackets_stand_for_themselves_when_doubled() {
        let quoted = |text: &str| Token::Quoted(text.into());
        assert_eq!(read("[a]]b]"), [quoted("a]b"), Token::End]);
        assert_eq!(read("\"a\"\"b\""), [quoted("a\"b"), Token::End]);
        assert_eq!(read("[//x/y; -- no /* comment]"), [quoted("//x/y; -- no /* comment"), Token::End]);
        for text in ["'it''s'", "N'it''s'", "n'it''s'"] {
            assert_eq!(read(text), [Token::Text("it's".into()), Token::End]);
        }
        assert_eq!(read("[]''"), [quoted(""), Token::Text(String::new()), Token::End]);
    }

    #[test]
    fn comments_nest_and_vanish() {
        assert_eq!(read("a /* x /* y */ z */ b -- c\n d"), [word("a"), word("b"), word("d"), Token::End]);
        assert_eq!(read("/**/a/*/**/*/"), [word("a"), Token::End]);
    }

    #[test]
    fn go_separates_only_on_a_line_of_its_own() {
        assert_eq!(read("a\nGO\nb"), [word("a"), Token::Go(None), word("b"), Token::End]);
        assert_eq!(read("  go 5 -- five\nb"), [Token::Go(Some("5".into())), word("b"), Token::End]);
        assert_eq!(read("GO;\r\nb"), [Token::Go(None), word("b"), Token::End]);
        assert_eq!(read("a GO"), [word("a"), word("GO"), Token::End]);
        assert_eq!(read("GO on"), [word("GO"), word("on"), Token::End]);
        assert_eq!(read("a 'x\nGO\n'"), [word("a"), Token::Text("x\nGO\n".into()), Token::End]);
        assert_eq!(read("[x\n] GO"), [Token::Quoted("x\n".into()), word("GO"), Token::End]);
    }

    #[test]
    fn positions_count_lines_and_characters() {
        let positions: Vec<_> = tokens("\u{feff}é [🚚]\r\n\t x").iter().map(|(_, p)| (p.line, p.column)).collect();
        assert_eq!(positions, [(1, 1), (1, 3), (2, 3), (2, 4)]);
    }

    #[test]
    fn an_unclosed_token_is_reported_where_it_opens() {
        for (script, line, column) in
            [("a\n 'b\nc", 2, 2), ("/* /* */", 1, 1), (" [x", 1, 2), ("\"", 1, 1), ("a N'b", 1, 3)]
        {
            let tokens = tokens(script);
            let (last, position) = tokens.last().unwrap();
            assert!(matches!(last, Token::Unreadable(why) if why.contains("not closed")), "{script:?}: {last:?}");
            assert_eq!((position.line, position.column), (line, column), "{script:?}");
        }
    }

    #[test]
    fn long_tokens_are_shown_shortened() {
        assert_eq!(Token::Text("é".repeat(41)).to_string(), format!("'{}...'", "é".repeat(40)));
        assert_eq!(Token::Quoted("é".repeat(40)).to_string(), format!("[{}]", "é".repeat(40)));
    }
}
