#include "server/outbox.h"

namespace tenon::server {

bool Outbox::send(int status, api::Response::Headers headers, std::string body) {
  std::lock_guard lock(mutex_);
  if (answered_) return false;
  answered_ = whole_ = finished_ = true;
  status_ = status;
  headers_ = std::move(headers);
  bytes_ = std::move(body);
  wake_locked();
  return !gone_;
}

bool Outbox::start(int status, api::Response::Headers headers) {
  std::lock_guard lock(mutex_);
  if (answered_) return false;
  answered_ = true;
  status_ = status;
  headers_ = std::move(headers);
  wake_locked();
  return !gone_;
}

bool Outbox::write(std::string chunk) {
  std::lock_guard lock(mutex_);
  if (gone_ || broken_ || finished_) return false;
  if (bytes_.size() + chunk.size() > kBytesMax) {
    broken_ = true;
    bytes_.clear();
    wake_locked();
    return false;
  }
  if (bytes_.empty())
    bytes_ = std::move(chunk);
  else
    bytes_ += chunk;
  wake_locked();
  return true;
}

void Outbox::finish() {
  std::lock_guard lock(mutex_);
  if (broken_) return;
  finished_ = true;
  wake_locked();
}

void Outbox::abandon() {
  std::function<void()> unused;  // dies outside the lock
  std::lock_guard lock(mutex_);
  unused.swap(disconnected_);
  if (finished_) return;
  broken_ = true;
  wake_locked();
}

void Outbox::on_disconnect(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!gone_) {
      disconnected_ = std::move(callback);
      return;
    }
  }
  callback();
}

Outbox::View Outbox::take() {
  std::lock_guard lock(mutex_);
  notified_ = false;
  View view{answered_, whole_, finished_, broken_, {}};
  view.bytes.swap(bytes_);
  return view;
}

bool Outbox::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void Outbox::leave() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    callback.swap(disconnected_);
    bytes_.clear();
  }
  if (callback) callback();
}

void Outbox::detach() {
  std::function<void()> unused;
  std::lock_guard lock(mutex_);
  unused.swap(notify_);
}

void Outbox::wake_locked() {
  if (notified_ || !notify_) return;
  notified_ = true;
  notify_();
}

namespace {

class OutboxResponse : public api::Response {
 public:
  explicit OutboxResponse(std::shared_ptr<Outbox> outbox) : outbox_(std::move(outbox)) {}
  ~OutboxResponse() override {
    if (!answered_) api::send_error(*this, unavailable("The server is stopping."));
    outbox_->abandon();
  }
  void send(int status, Headers headers, std::string body) override {
    answered_ = true;
    outbox_->send(status, std::move(headers), std::move(body));
  }
  void start(int status, Headers headers) override {
    answered_ = true;
    outbox_->start(status, std::move(headers));
  }
  bool write(std::string chunk) override { return outbox_->write(std::move(chunk)); }
  void finish() override { outbox_->finish(); }
  void on_disconnect(std::function<void()> callback) override {
    outbox_->on_disconnect(std::move(callback));
  }

 private:
  const std::shared_ptr<Outbox> outbox_;
  bool answered_ = false;
};

}  // namespace

std::shared_ptr<api::Response> make_response(std::shared_ptr<Outbox> outbox) {
  return std::make_shared<OutboxResponse>(std::move(outbox));
}

}  // namespace tenon::server
