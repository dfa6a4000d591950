// One-line diagnostics on stderr. Thread: any. Never on the token path above debug.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tenon {

enum class LogLevel { debug, info, warn, error, off };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
bool parse_log_level(std::string_view name, LogLevel* out);
void log_line(LogLevel level, std::string_view line);

template <class... A>
void log(LogLevel level, fmt::format_string<A...> f, A&&... a) {
  if (log_enabled(level)) log_line(level, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void log_debug(fmt::format_string<A...> f, A&&... a) {
  log(LogLevel::debug, f, std::forward<A>(a)...);
}
template <class... A>
void log_info(fmt::format_string<A...> f, A&&... a) {
  log(LogLevel::info, f, std::forward<A>(a)...);
}
template <class... A>
void log_warn(fmt::format_string<A...> f, A&&... a) {
  log(LogLevel::warn, f, std::forward<A>(a)...);
}

}  // namespace tenon
