// One client connection: reads requests one after another, hands them to api, writes the replies.
// Thread: the I/O thread only; other threads reach it through the Outbox. Ownership: its coroutine
// and its pending operations keep it. Limits: header 16 KiB, body Options::body_bytes_max, 64 KiB
// of pipelined bytes while a reply is pending. Errors answered here: 400 malformed, 401, 408 slow
// request, 413, 417, 431; the connection then closes, after taking in for a moment what the client
// is still sending, so that it reads the answer and no reset. Leaving: end of the client's stream
// while a reply is pending, also when it only closed its sending side.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <string>
#include <unordered_set>

#include "server/outbox.h"
#include "server/policy.h"
#include "server/server.h"

namespace tenon::server {

namespace net = boost::asio;
using Socket = net::generic::stream_protocol::socket;  // TCP or Unix

class Connection;

// What all connections share. I/O thread only; outlives them.
struct Shared {
  Options options;
  api::Context context;
  KeyRing keys;
  std::unordered_set<Connection*> open;
  bool stopping = false;
  size_t body_bytes = 0;  // of requests being read or answered
  std::function<void()> on_closed;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, Shared& shared);
  ~Connection();
  net::awaitable<void> run(std::shared_ptr<Connection> self);
  void stop_if_idle();
  void cut();    // the reply in progress is given up
  void close();  // at once

 private:
  struct Incoming;  // a request being read, connection.cpp
  net::awaitable<bool> serve_one();  // false: close
  net::awaitable<bool> wait_bytes();
  net::awaitable<bool> read_header(Incoming& in);
  net::awaitable<bool> check_header(Incoming& in);
  net::awaitable<bool> read_body(Incoming& in);
  net::awaitable<bool> answer_options(Incoming& in);
  net::awaitable<void> refuse(Incoming& in, int status, std::string message, const char* code);
  net::awaitable<bool> reply(bool body_wanted, bool chunks_known, bool keep_alive);
  net::awaitable<bool> write_all(std::string bytes);
  net::awaitable<void> drain();
  void dispatch(Incoming& in);

  std::string head(int status, const api::Response::Headers& headers, const std::string& framing,
                   bool keep_alive) const;
  void watch();
  void peek();
  void unwatch();
  void on_notified();
  void arm(int seconds);
  void disarm();

  Shared& shared_;
  Socket socket_;
  boost::beast::flat_buffer buffer_;
  net::steady_timer wake_;      // cancelled when the outbox has news
  net::steady_timer deadline_;
  unsigned deadline_id_ = 0;
  unsigned watch_id_ = 0;
  bool watching_ = false, timed_out_ = false, idle_ = false, left_ = false;
  std::shared_ptr<Outbox> outbox_;
};

}  // namespace tenon::server
