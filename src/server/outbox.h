// Where a reply waits between the thread that makes it and the I/O thread that writes it.
// Threads: the producer side (Response) from any one thread at a time; the connection side on the
// I/O thread. Ownership: shared by both; a producer that outlives its connection, or the server,
// holds nothing of the I/O library but `notify`, which detach() drops. Limit: kBytesMax waiting
// bytes of a stream; past it the reader counts as gone.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api/api.h"

namespace tenon::server {

class Outbox {
 public:
  static constexpr size_t kBytesMax = 1 << 20;

  // `notify` asks the I/O thread to look; it must not call back here.
  explicit Outbox(std::function<void()> notify) : notify_(std::move(notify)) {}

  // Producer side.
  bool send(int status, api::Response::Headers headers, std::string body);  // whole
  bool start(int status, api::Response::Headers headers);
  bool write(std::string chunk);
  void finish();
  void abandon();  // the producer is gone; without finish() the reply is broken
  void on_disconnect(std::function<void()> callback);

  // Connection side.
  struct View {
    bool answered = false;  // status and headers are there
    bool whole = false;     // by send(): `bytes` is the body
    bool finished = false;  // nothing follows `bytes`
    bool broken = false;    // abandoned, or the reader was too slow
    std::string bytes;
  };
  View take();
  bool broken() const;
  int status() const { return status_; }                               // after answered
  const api::Response::Headers& headers() const { return headers_; }   // after answered
  void leave();   // the client is gone before the end: runs the callback
  void detach();  // no more notify

 private:
  void wake_locked();

  mutable std::mutex mutex_;
  std::function<void()> notify_, disconnected_;
  int status_ = 0;
  api::Response::Headers headers_;
  std::string bytes_;
  bool answered_ = false, whole_ = false, finished_ = false, broken_ = false;
  bool gone_ = false;      // the client left
  bool notified_ = false;  // one look is on its way
};

// The api::Response over an outbox. Dropped without an answer, it answers 503; that is what happens
// to requests still queued when the server stops.
std::shared_ptr<api::Response> make_response(std::shared_ptr<Outbox> outbox);

}  // namespace tenon::server
