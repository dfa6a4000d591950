//! `strftime_now(format)`: the local time, as Python's `datetime.now().strftime` prints it (which
//! is the C library's strftime, so this is too).

use std::ffi::CString;
use std::mem::MaybeUninit;

use minijinja::{Error, ErrorKind};

pub fn strftime_now(format: &str) -> Result<String, Error> {
    // SAFETY: a null argument is allowed.
    strftime(format, unsafe { libc::time(std::ptr::null_mut()) })
}

fn strftime(format: &str, seconds: libc::time_t) -> Result<String, Error> {
    let refuse = |why| Error::new(ErrorKind::InvalidOperation, why);
    let c_format = CString::new(format).map_err(|_| refuse("strftime_now: NUL in the format"))?;
    // The longest conversions (%c, %+) stay below 64 bytes in every locale of the C library.
    let mut buffer = vec![0u8; 64 * (format.len() + 1)];
    let mut time = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid; a null result means `time` was not written.
    let written = unsafe {
        if libc::localtime_r(&seconds, time.as_mut_ptr()).is_null() {
            return Err(refuse("strftime_now: the clock is out of range"));
        }
        let data = buffer.as_mut_ptr().cast();
        libc::strftime(data, buffer.len(), c_format.as_ptr(), time.as_ptr())
    };
    buffer.truncate(written);
    String::from_utf8(buffer).map_err(|_| refuse("strftime_now: the result is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_like_c() {
        // The middle of 2 August 2024, whatever the time zone.
        let noon = 1_722_600_000;
        assert_eq!(strftime("%Y|%%|%b", noon).unwrap(), "2024|%|Aug");
        assert_eq!(strftime("", noon).unwrap(), "");
        assert!(strftime("%Y\0", noon).is_err());
        assert_eq!(strftime_now("%Y").unwrap().len(), 4);
    }
}
