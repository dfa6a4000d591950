//! C entry points of the tokenizer.

use super::border::{Owned, TkIds, TkText, guard, slice, text};
use crate::failure::{Failure, Kind};
use crate::tokenizer::Engine;

/// What encoding makes of added tokens; mirrors `TkMode` in textkit.h.
const MODE_PLAIN: u32 = 0;
const MODE_PARSE: u32 = 1;
const MODE_FRAME: u32 = 2;

/// One entry of the vocabulary, borrowed from the tokenizer.
#[repr(C)]
pub struct TkToken {
    bytes: *const u8,
    len: usize,
    special: bool,
}

/// # Safety
/// `json` points at `len` bytes; `out` and `error` are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_tokenizer_new(
    json: *const u8,
    len: usize,
    out: *mut *mut Engine,
    error: *mut TkText,
) -> i32 {
    // SAFETY: by the contract above, here and in every block of this file.
    unsafe {
        guard(error, || {
            let engine = Engine::from_json(slice(json, len))?;
            out.write(Box::into_raw(Box::new(engine)));
            Ok(())
        })
    }
}

/// # Safety
/// `engine` came from `tk_tokenizer_new` and is not used again, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_tokenizer_free(engine: *mut Engine) {
    if !engine.is_null() {
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// # Safety
/// `engine` is a live tokenizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_vocab_size(engine: *const Engine) -> usize {
    unsafe { &*engine }.vocabulary().len()
}

/// # Safety
/// `engine` is a live tokenizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_is_bytewise(engine: *const Engine) -> bool {
    unsafe { &*engine }.vocabulary().is_bytewise()
}

/// # Safety
/// `engine` is a live tokenizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_token(engine: *const Engine, id: u32) -> TkToken {
    let (bytes, special) = unsafe { &*engine }.vocabulary().token(id);
    TkToken { bytes: bytes.as_ptr(), len: bytes.len(), special }
}

/// # Safety
/// `engine` is a live tokenizer, `token` points at `len` bytes, `id` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_token_to_id(
    engine: *const Engine,
    token: *const u8,
    len: usize,
    id: *mut u32,
) -> bool {
    let found = unsafe {
        std::str::from_utf8(slice(token, len)).ok().and_then(|token| (*engine).token_to_id(token))
    };
    if let Some(found) = found {
        unsafe { id.write(found) };
    }
    found.is_some()
}

/// # Safety
/// `engine` is a live tokenizer, `data` points at `len` bytes, `out` and `error` are valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_encode(
    engine: *const Engine,
    data: *const u8,
    len: usize,
    mode: u32,
    out: *mut TkIds,
    error: *mut TkText,
) -> i32 {
    unsafe {
        guard(error, || {
            let (engine, text) = (&*engine, text(data, len)?);
            let ids = match mode {
                MODE_PLAIN => engine.encode_plain(text)?,
                MODE_PARSE => engine.encode(text, false)?,
                MODE_FRAME => engine.encode(text, true)?,
                _ => {
                    let message = format!("unknown encode mode {mode}");
                    return Err(Failure::new(Kind::Internal, message));
                }
            };
            out.write(Owned::give(ids));
            Ok(())
        })
    }
}

/// # Safety
/// As `tk_encode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_encode_marked(
    engine: *const Engine,
    data: *const u8,
    len: usize,
    mark: u32,
    out: *mut TkIds,
    error: *mut TkText,
) -> i32 {
    unsafe {
        guard(error, || {
            let mark = char::from_u32(mark)
                .ok_or_else(|| Failure::new(Kind::Internal, "the mark is not a character"))?;
            let ids = (*engine).encode_marked(text(data, len)?, mark)?;
            out.write(Owned::give(ids));
            Ok(())
        })
    }
}

/// # Safety
/// `engine` is a live tokenizer, `ids` points at `len` values, `out` and `error` are valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_decode(
    engine: *const Engine,
    ids: *const u32,
    len: usize,
    skip_special: bool,
    out: *mut TkText,
    error: *mut TkText,
) -> i32 {
    unsafe {
        guard(error, || {
            let decoded = (*engine).decode(slice(ids, len), skip_special)?;
            out.write(Owned::give(decoded.into_bytes()));
            Ok(())
        })
    }
}
