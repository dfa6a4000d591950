// The door of server: sockets. The only room that includes the HTTP library.
// Threads: run() owns one I/O thread's loop and returns after stop(); handlers run on request
// workers. Limits: header 16 KiB, body Options::body_bytes_max, per-connection output buffer 1 MiB,
// connections 4096. A client that closes its sending side while a reply is pending counts as gone.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/api.h"
#include "base/result.h"

namespace tenon::server {

struct ApiKey {
  std::string name;
  std::string secret;
};

struct Options {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free port, reported by port()
  std::string unix_path;  // listen there as well when not empty
  std::vector<ApiKey> keys;  // empty: no key needed
  std::string cors_origin;  // empty: no CORS headers; "*" allowed, never with credentials
  size_t body_bytes_max = 64 << 20;
  size_t bodies_bytes_max = 256 << 20;  // of all requests being read or answered; past it: 503
  int body_timeout_s = 120;  // for the whole of a body
  int idle_timeout_s = 75;  // keep-alive connections and slow headers
  int write_timeout_s = 30;  // a reader that takes nothing
  int keepalive_comment_s = 15;  // SSE comment during silence
};

class Server {
 public:
  virtual ~Server() = default;
  // Binds; errors: unavailable with address, port and what to do when it is taken.
  static Result<std::unique_ptr<Server>> listen(const Options& options,
                                                const api::Context& context);
  virtual int port() const = 0;
  virtual void run() = 0;  // until stop()
  // From any thread or a signal watcher. First call: no new connections, idle ones are closed,
  // replies in progress may end. Second call: the rest is cut.
  virtual void stop() = 0;
  // Runs `on_signal` on the I/O loop at each SIGINT or SIGTERM. Call before run().
  virtual void on_signals(std::function<void(int)> on_signal) = 0;
};

}  // namespace tenon::server
