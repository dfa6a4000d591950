// Result<T>: how expected failures travel. Anything a user, a file or a peer can cause is an Error
// with a Code; programmer errors use CHECK (base/check.h). Thread: any. No MLX.
//
//   Result<Config> parse(std::string_view text) {
//     TENON_TRY(auto doc, parse_json(text));            // returns the Error to the caller
//     if (!doc.is_object()) return invalid("config.json: not an object");
//     ...
//   }
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tenon {

enum class Code {
  invalid,      // the input is wrong; saying it again will not help
  not_found,    // a file, model, tensor or route that is not there
  unsupported,  // understood, but this build cannot do it
  too_large,    // over a stated limit
  overloaded,   // a bounded queue or budget is full; try later
  cancelled,    // the caller asked to stop
  deadline,     // ran out of its allotted time
  corrupt,      // a file whose contents contradict themselves
  unavailable,  // not ready, or stopping
  internal,     // our fault
};
const char* code_name(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;   // one line, names the file, flag or field and what to do
  std::string field;     // request field at fault, may be empty
  std::string reason;  // machine-readable reason for API clients, e.g. "context_length_exceeded"

  Error& at(std::string_view field_name) {
    field = field_name;
    return *this;
  }
  Error& because(std::string_view machine_reason) {
    reason = machine_reason;
    return *this;
  }
};

// invalid("bad {}", x) and so on; one maker per code.
#define TENON_ERROR_MAKER(code_)                                              \
  template <class... A>                                                       \
  [[nodiscard]] Error code_(fmt::format_string<A...> f, A&&... a) {           \
    return Error{Code::code_, fmt::format(f, std::forward<A>(a)...), {}, {}}; \
  }
TENON_ERROR_MAKER(invalid)
TENON_ERROR_MAKER(not_found)
TENON_ERROR_MAKER(unsupported)
TENON_ERROR_MAKER(too_large)
TENON_ERROR_MAKER(overloaded)
TENON_ERROR_MAKER(cancelled)
TENON_ERROR_MAKER(deadline)
TENON_ERROR_MAKER(corrupt)
TENON_ERROR_MAKER(unavailable)
TENON_ERROR_MAKER(internal)
#undef TENON_ERROR_MAKER

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return std::get<1>(v_); }
  const Error& error() const& { return std::get<1>(v_); }
  Error&& error() && { return std::get<1>(std::move(v_)); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  Error& error() & { return error_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};
using Status = Result<void>;

#define TENON_CONCAT_(a, b) a##b
#define TENON_CONCAT(a, b) TENON_CONCAT_(a, b)
#define TENON_TRY_(tmp, decl, expr)             \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
// TENON_TRY(auto x, f()): x = f()'s value, or return f()'s Error.
#define TENON_TRY(decl, expr) TENON_TRY_(TENON_CONCAT(try_, __COUNTER__), decl, expr)
// TENON_OK(f()): return f()'s Error if it has one.
#define TENON_OK(expr)                                                           \
  do {                                                                           \
    if (auto status_ = (expr); !status_.ok()) return std::move(status_).error(); \
  } while (0)

}  // namespace tenon
