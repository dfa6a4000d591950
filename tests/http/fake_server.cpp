// The real server over the fake engine, for client tests: prints "listening on 127.0.0.1:PORT" and
// serves until SIGINT or SIGTERM (a second one cuts replies short). Environment: TENON_FAKE_PORT,
// TENON_FAKE_TOKEN_MS, TENON_FAKE_PREFILL_MS, TENON_FAKE_QUEUE, TENON_FAKE_API_KEY,
// TENON_FAKE_CORS, TENON_FAKE_UNIX, TENON_FAKE_BODY_MAX, TENON_FAKE_IDLE_S, TENON_FAKE_COMMENT_S,
// TENON_FAKE_WRITE_S.
#include "fake_engine.h"
#include "server/server.h"

namespace {

std::string text_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
int int_env(const char* name, int fallback) {
  const std::string value = text_env(name);
  return value.empty() ? fallback : std::atoi(value.c_str());
}

}  // namespace

int main() {
  using namespace tenon;
  fake::FakeOptions pace;
  pace.token_ms = int_env("TENON_FAKE_TOKEN_MS", 0);
  pace.prefill_ms = int_env("TENON_FAKE_PREFILL_MS", 0);
  pace.queue_max = static_cast<size_t>(int_env("TENON_FAKE_QUEUE", 64));
  const auto workers = api::make_workers(2, 256);  // dies last
  auto engine = std::make_unique<fake::FakeEngine>(pace);

  server::Options options;
  options.port = int_env("TENON_FAKE_PORT", 0);
  options.unix_path = text_env("TENON_FAKE_UNIX");
  options.cors_origin = text_env("TENON_FAKE_CORS");
  options.body_bytes_max = static_cast<size_t>(int_env("TENON_FAKE_BODY_MAX", 64 << 20));
  options.idle_timeout_s = int_env("TENON_FAKE_IDLE_S", 75);
  options.write_timeout_s = int_env("TENON_FAKE_WRITE_S", 30);
  options.keepalive_comment_s = int_env("TENON_FAKE_COMMENT_S", 15);
  if (const std::string key = text_env("TENON_FAKE_API_KEY"); !key.empty())
    options.keys.push_back({"test", key});
  api::Context context;
  context.engine = engine.get();
  context.workers = workers.get();
  context.limits.body_bytes_max = options.body_bytes_max;

  auto server = server::Server::listen(options, context);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  (*server)->on_signals([&](int) { (*server)->stop(); });
  std::printf("listening on %s:%d\n", options.host.c_str(), (*server)->port());
  std::fflush(stdout);
  (*server)->run();

  server->reset();
  engine->drain(0);
  workers->stop();
  engine.reset();
  return 0;
}
