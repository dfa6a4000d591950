//! C entry points of the chat template.

use super::border::{Owned, TkText, guard, text};
use crate::template::Template;

/// # Safety
/// `source` and `name` point at their lengths' bytes; `out` and `error` are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_template_new(
    source: *const u8,
    source_len: usize,
    name: *const u8,
    name_len: usize,
    out: *mut *mut Template,
    error: *mut TkText,
) -> i32 {
    // SAFETY: by the contract above, here and in every block of this file.
    unsafe {
        guard(error, || {
            let template = Template::compile(text(source, source_len)?, text(name, name_len)?)?;
            out.write(Box::into_raw(Box::new(template)));
            Ok(())
        })
    }
}

/// # Safety
/// `template` came from `tk_template_new` and is not used again, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(unsafe { Box::from_raw(template) });
    }
}

/// # Safety
/// `template` is live, `context` points at `len` bytes, `out` and `error` are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tk_template_render(
    template: *const Template,
    context: *const u8,
    len: usize,
    out: *mut TkText,
    error: *mut TkText,
) -> i32 {
    unsafe {
        guard(error, || {
            let rendered = (*template).render(text(context, len)?)?;
            out.write(Owned::give(rendered.into_bytes()));
            Ok(())
        })
    }
}
