// CHECK: a programmer's error. Unreachable from request bytes and files; aborts with file and line.
#pragma once
#include <fmt/format.h>

#include <string>

namespace tenon {
[[noreturn]] void check_failed(const char* file, int line, const char* what,
                               const std::string& why);
}

#define CHECK(cond, ...)                                                                        \
  do {                                                                                          \
    if (!(cond)) ::tenon::check_failed(__FILE__, __LINE__, #cond, fmt::format("" __VA_ARGS__)); \
  } while (0)
