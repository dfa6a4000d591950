#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tenon {

namespace {
spdlog::logger& logger() {
  static auto instance = [] {
    auto log = spdlog::stderr_color_mt("tenon");
    log->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    log->set_level(spdlog::level::info);
    return log;
  }();
  return *instance;
}
spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}
}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }
bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }
void log_line(LogLevel level, std::string_view line) { logger().log(to_spdlog(level), "{}", line); }

bool parse_log_level(std::string_view name, LogLevel* out) {
  for (LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off}) {
    static constexpr std::string_view kNames[] = {"debug", "info", "warn", "error", "off"};
    if (kNames[static_cast<int>(level)] == name) {
      *out = level;
      return true;
    }
  }
  return false;
}

}  // namespace tenon
