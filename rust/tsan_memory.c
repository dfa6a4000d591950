/* What LLVM calls for memory copies under ThreadSanitizer; libtsan has these names from GCC 13 on.
 * libtsan intercepts the plain functions, so nothing is lost. */
#include <stddef.h>
#include <string.h>

void* __tsan_memcpy(void* to, const void* from, size_t count) { return memcpy(to, from, count); }
void* __tsan_memmove(void* to, const void* from, size_t count) { return memmove(to, from, count); }
void* __tsan_memset(void* at, int byte, size_t count) { return memset(at, byte, count); }
