//! What every entry point shares: borrowed inputs, owned outputs, and the catch of errors and
//! panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::failure::{Failure, Kind, Outcome};

/// An array handed to the caller; it comes back to the matching `tk_*_free`.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    len: usize,
}

pub type TkText = Owned<u8>;
pub type TkIds = Owned<u32>;

impl<T> Owned<T> {
    pub fn give(values: Vec<T>) -> Self {
        let len = values.len();
        let data = Box::into_raw(values.into_boxed_slice()).cast();
        Owned { data, len }
    }

    /// # Safety
    /// `self` came from `give` and was not freed before, or its pointer is null.
    unsafe fn free(self) {
        if !self.data.is_null() {
            // SAFETY: pointer and length are those of the boxed slice that `give` leaked.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.len)) });
        }
    }
}

/// # Safety
/// See `Owned::free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_text_free(text: TkText) {
    // SAFETY: passed on to the caller.
    unsafe { text.free() }
}

/// # Safety
/// See `Owned::free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_ids_free(ids: TkIds) {
    // SAFETY: passed on to the caller.
    unsafe { ids.free() }
}

/// Runs `work`; an error or a panic becomes a status, with its text in `*error`.
///
/// # Safety
/// `error` is null or valid for a write.
pub unsafe fn guard(error: *mut TkText, work: impl FnOnce() -> Outcome<()>) -> i32 {
    silence_panics();
    // A panic can leave no half-changed state behind: handles are immutable after creation.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Kind::Internal, panic_text(payload.as_ref())),
    };
    if !error.is_null() {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { error.write(Owned::give(failure.message.into_bytes())) };
    }
    failure.kind as i32
}

/// The default hook writes to stderr; here the text reaches the caller instead.
fn silence_panics() {
    static ONCE: Once = Once::new();
    if !cfg!(test) {
        ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// # Safety
/// `data` points at `len` readable items, or `len` is 0.
pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// # Safety
/// As `slice`.
pub unsafe fn text<'a>(data: *const u8, len: usize) -> Outcome<&'a str> {
    // SAFETY: by this function's contract.
    std::str::from_utf8(unsafe { slice(data, len) }).map_err(|e| {
        let at = e.valid_up_to();
        Failure::new(Kind::Invalid, format!("text is not UTF-8 at byte {at}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_errors_become_statuses() {
        let mut error = Owned::give(Vec::new());
        let status = unsafe { guard(&mut error, || panic!("deliberate {}", 42)) };
        assert_eq!(status, Kind::Internal as i32);
        let message = unsafe { text(error.data, error.len) }.unwrap();
        assert_eq!(message, "panic: deliberate 42");
        unsafe { tk_text_free(error) };

        let refuse = || Err(Failure::new(Kind::Corrupt, "bad file"));
        let status = unsafe { guard(std::ptr::null_mut(), refuse) };
        assert_eq!(status, Kind::Corrupt as i32);
        assert_eq!(unsafe { guard(std::ptr::null_mut(), || Ok(())) }, 0);
    }

    #[test]
    fn text_must_be_utf8() {
        let failure = unsafe { text(b"ab\xff".as_ptr(), 3) }.unwrap_err();
        assert_eq!(failure.kind, Kind::Invalid);
        assert!(failure.message.ends_with("at byte 2"));
    }
}
