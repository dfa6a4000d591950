//! How an operation fails: a kind the caller can act on and a line of text.

/// Mirrors `TkStatus` in textkit.h; zero is success and has no variant here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's input is wrong.
    Invalid = 1,
    /// A file contradicts itself.
    Corrupt = 2,
    /// Understood, but not built in.
    Unsupported = 3,
    /// Past a stated limit.
    TooLarge = 4,
    /// A bug in this library or in a crate below it.
    Internal = 5,
}

#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Failure { kind, message }
    }

    /// An error of the tokenizers crate that no input should cause.
    pub fn internal(error: tokenizers::Error) -> Self {
        Failure::new(Kind::Internal, error.to_string())
    }
}
