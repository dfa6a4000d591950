// Names and the CHECK abort; the rest of base is in headers or its own file.
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/generation.h"
#include "base/result.h"

namespace tenon {

const char* code_name(Code code) {
  switch (code) {
    case Code::invalid: return "invalid";
    case Code::not_found: return "not_found";
    case Code::unsupported: return "unsupported";
    case Code::too_large: return "too_large";
    case Code::overloaded: return "overloaded";
    case Code::cancelled: return "cancelled";
    case Code::deadline: return "deadline";
    case Code::corrupt: return "corrupt";
    case Code::unavailable: return "unavailable";
    case Code::internal: return "internal";
  }
  return "internal";
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "error";
}

void check_failed(const char* file, int line, const char* what, const std::string& why) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed%s%s\n", file, line, what, why.empty() ? "" : ": ",
               why.c_str());
  std::abort();
}

}  // namespace tenon
