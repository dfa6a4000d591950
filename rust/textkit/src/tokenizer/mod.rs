//! The tokenizer: one engine for every tokenizer.json.

mod engine;
#[cfg(test)]
mod fixture;
mod load;
mod vocabulary;

pub use engine::Engine;
