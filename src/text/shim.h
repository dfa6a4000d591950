// Calls into the Rust shim (rust/textkit) as Results. Internal to this room.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "textkit.h"

namespace tenon::text {

inline std::string take(TkText text) {
  std::string out(reinterpret_cast<const char*>(text.data), text.len);
  tk_text_free(text);
  return out;
}

// Ids are below 2^24 (checked when a tokenizer is loaded), so int32 holds them.
inline std::vector<int32_t> take(TkIds ids) {
  std::vector<int32_t> out(ids.data, ids.data + ids.len);
  tk_ids_free(ids);
  return out;
}

inline Error shim_error(int status, TkText error) {
  const std::string why = take(error);
  switch (status) {
    case TK_INVALID: return invalid("{}", why);
    case TK_CORRUPT: return corrupt("{}", why);
    case TK_UNSUPPORTED: return unsupported("{}", why);
    case TK_TOO_LARGE: return too_large("{}", why);
    default: return internal("{}", why);
  }
}

// call(out, error) is one of the shim's functions with its other arguments bound.
template <class Raw, class Call>
auto shim_take(Call call) -> Result<decltype(take(Raw{}))> {
  Raw out{};
  TkText error{};
  if (const int status = call(&out, &error); status != TK_OK) return shim_error(status, error);
  return take(out);
}

struct FreeShim {
  void operator()(TkTokenizer* tokenizer) const { tk_tokenizer_free(tokenizer); }
  void operator()(TkTemplate* chat_template) const { tk_template_free(chat_template); }
};
template <class Handle>
using Shim = std::unique_ptr<Handle, FreeShim>;

template <class Handle, class Call>
Result<Shim<Handle>> shim_make(Call call) {
  Handle* handle = nullptr;
  TkText error{};
  if (const int status = call(&handle, &error); status != TK_OK) return shim_error(status, error);
  return Shim<Handle>(handle);
}

}  // namespace tenon::text
