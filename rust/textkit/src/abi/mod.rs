//! The border to C: raw pointers in, status codes out. Ownership rules are in textkit.h.

mod border;
mod template;
mod tokenizer;
